//! The benchmark of a CRI runtime: the same calls for every runtime, and what they cost.
//!
//! Rule: times are of calls as a client sees them; memory is the kernel's own count by process. Two
//! runtimes are there at once and are measured by turns, never two at one time: what the machine does
//! meanwhile happens to both. They share programs and nothing else: folders, control groups and networks
//! are each its own.

pub mod calls;
pub mod images;
pub mod measure;
pub mod memory;
pub mod plugins;
