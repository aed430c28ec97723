//! File system access for adapters whose directories other programs write to as well.
//!
//! Rule: below a root no symlink is followed unless it is asked for, and then none that leaves the
//! root; nothing is removed through a mount; a write is complete or not there. Contains no policy
//! and knows no pods.

mod beneath;
mod blocking_pool;
mod durable;
mod mounts;
mod path_error;
mod removal;

pub use beneath::{FileNameError, OpenDir, SymlinkPolicy, check_name};
pub use blocking_pool::{BlockingPool, BlockingPoolError};
pub use durable::{WriteDurability, write_whole};
pub use mounts::{is_mount_root, mounts_beneath};
pub use path_error::{PathError, PathErrorExt};
pub use removal::remove_tree;

#[cfg(test)]
mod tests;
