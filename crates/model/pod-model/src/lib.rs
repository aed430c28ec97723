//! Words of the domain: quantities, Go durations, CPU sets, names and labels.
