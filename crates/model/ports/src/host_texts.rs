//! Small text files of this machine that pods are told about: `resolv.conf`, `/etc/hosts`.
//!
//! Rule: read whole or not at all, within a limit of size and time.

use crate::pod_host::HostFuture;

pub trait HostTexts: Send + Sync {
    /// None where there is no such file.
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, Option<String>>;
}
