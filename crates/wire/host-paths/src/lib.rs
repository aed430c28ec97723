//! File system access for adapters whose directories other programs write to as well.
//!
//! Rule: below a root no symlink is followed unless it is asked for, and then none that leaves the
//! root; nothing is removed through a mount; a write is complete or not there. Contains no policy
//! and knows no pods.

mod apart;
mod beneath;
mod durable;
mod mounts;
mod removal;
mod trouble;

pub use apart::{Apart, ApartError};
pub use beneath::{Folder, Links, check_name};
pub use durable::{Settled, write_whole};
pub use mounts::{is_mount_root, mounts_beneath};
pub use removal::remove_tree;
pub use trouble::{Doing, Trouble};

#[cfg(test)]
mod tests;
