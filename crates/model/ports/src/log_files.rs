//! The port to containers' log files, for rotation.
//!
//! Rule: a log is named by its absolute path, its rotated files by their names in the same
//! directory. No existing file is ever overwritten. Does not decide what is rotated.

use crate::pod_host::HostFuture;

/// Log files below the directory of pod logs.
pub trait LogFiles: Send + Sync {
    /// The size of each of these logs; None where it does not exist or is not a file that can be
    /// rotated (a symlink, a FIFO, a path outside the log directory).
    fn sizes<'a>(&'a self, logs: &'a [String]) -> HostFuture<'a, Vec<Option<u64>>>;
    /// Names in the log's directory.
    fn names<'a>(&'a self, log: &'a str) -> HostFuture<'a, Vec<String>>;
    /// Renames within the log's directory; fails where the new name exists.
    fn rename<'a>(&'a self, log: &'a str, from: &'a str, to: &'a str) -> HostFuture<'a, ()>;
    /// Compresses `name` to `name.gz` and removes `name`; an unfinished file is `name.tmp`.
    fn pack<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()>;
    /// Removes a file of the log's directory; a missing file is not an error.
    fn remove<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()>;
}
