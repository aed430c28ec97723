//! The benchmark of a CRI runtime: the same calls for every runtime, and what they cost.
//!
//! Rule: times are of calls as a client sees them; memory is the kernel's own count by process. Two
//! runtimes run at once and are measured in turns, never both at the same time: what else the
//! machine does affects both. They share programs and nothing else: each has its own directories,
//! cgroups and networks.

pub mod calls;
pub mod images;
pub mod measure;
pub mod memory;
pub mod plugins;
