//! Whether the kernel can limit swap by cgroup.
//!
//! Rule: checks for the limit's file, since a kernel may account memory and not swap
//! (`swapaccount=0`, built without it); then limiting swap fails. Read beneath a root, so that a
//! directory of files can stand in for a machine in tests.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
//! (checkSwapControllerAvailability)

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

#[cfg(test)]
mod tests;

const TREE: &str = "sys/fs/cgroup";

/// Of the machine beneath `root`.
pub fn can_limit_swap(root: &Path) -> bool {
    let tree = root.join(TREE);
    if !tree.join("cgroup.controllers").exists() {
        return tree.join("memory/memory.memsw.limit_in_bytes").exists();
    }
    let own = fs::read(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut lines = own.split(|byte| *byte == b'\n');
    let own = lines.find_map(|line| line.strip_prefix(b"0::")).unwrap_or(b"/");
    let own = Path::new(OsStr::from_bytes(own));
    let limits = |group: &Path| group.join("memory.swap.max").exists();
    match own.strip_prefix("/").unwrap_or(own) {
        // The root itself has no limits. Upstream answers "no" here; the cgroups beneath it would
        // have the file, and without it pods could use swap that the node does not allow.
        own if own.as_os_str().is_empty() => {
            let groups = fs::read_dir(&tree).into_iter().flatten().flatten();
            groups.map(|entry| entry.path()).any(|group| limits(&group))
        }
        own => limits(&tree.join(own)),
    }
}
