//! The benchmark of a CRI runtime: the same calls for every runtime, and what they cost.
//!
//! Rule: times are of calls as a client sees them; memory is the kernel's own count by process. One
//! runtime is measured after another on the same machine, never two at once.

pub mod calls;
pub mod images;
pub mod measure;
pub mod memory;
