//! Small text files of the host that pods are configured from: `resolv.conf`, `/etc/hosts`.
//!
//! Rule: read whole or not at all, within a size limit and a timeout.

use crate::pod_host::HostFuture;

pub trait HostTextFiles: Send + Sync {
    /// None where there is no such file.
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, Option<String>>;
}
