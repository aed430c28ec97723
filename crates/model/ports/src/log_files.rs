//! The seam to the log files of containers, as rotating them needs it.
//!
//! Rule: a log is named by its absolute path, its relatives by their names in the same folder.
//! Nothing that is there is ever written over. Decides nothing about what is rotated.

use crate::pod_host::HostFuture;

/// Log files below the folder of pod logs.
pub trait LogFiles: Send + Sync {
    /// How long each of these logs is; None where it is not there or is not a file that could be
    /// rotated (a link, a pipe, a place that is not ours).
    fn sizes<'a>(&'a self, logs: &'a [String]) -> HostFuture<'a, Vec<Option<u64>>>;
    /// Names in the log's folder.
    fn names<'a>(&'a self, log: &'a str) -> HostFuture<'a, Vec<String>>;
    /// Renames within the log's folder; refuses where the new name is taken.
    fn rename<'a>(&'a self, log: &'a str, from: &'a str, to: &'a str) -> HostFuture<'a, ()>;
    /// Packs `name` into `name.gz` and removes `name`; what is half done is `name.tmp`.
    fn pack<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()>;
    /// Removes a file of the log's folder; one that is gone is no failure.
    fn remove<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()>;
}
