//! The one binary: composes adapters, shell and verbs.

fn main() {}
