//! Paths of logs and names of their symlinks.
//!
//! Rule: log shippers read these names; they are the reference's to the letter. A link's name fits
//! into a file name of 255 bytes whatever a pod is called.
//!
//! upstream: pkg/kubelet/kuberuntime/helpers.go, pkg/kubelet/kuberuntime/legacy.go

use pod_model::pod::Pod;

#[cfg(test)]
mod tests;

/// The directory of the symlinks for log shippers.
pub const LINKS_DIRECTORY: &str = "/var/log/containers";

const LINK_SUFFIX: &str = ".log";
const LONGEST_FILE_NAME: usize = 255;

/// `<namespace>_<name>_<uid>`: the name of the pod's log directory.
pub fn pod_dir(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}_{}_{}", meta.namespace, meta.name, meta.uid)
}

/// The pod's log directory, absolute.
pub fn pod_directory(pod_logs_directory: &str, pod: &Pod) -> String {
    join(pod_logs_directory, &pod_dir(pod))
}

/// A container's log directory, absolute.
pub fn container_directory(pod_logs_directory: &str, pod: &Pod, container: &str) -> String {
    join(&pod_directory(pod_logs_directory, pod), container)
}

/// A container's log, relative to the pod's log directory.
pub fn container_log(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}.log")
}

/// The UID in the name of a log directory. The oldest form is the UID alone.
pub fn uid_of_dir(dir: &str) -> &str {
    dir.rsplit('_').next().unwrap_or(dir)
}

/// The name of a container's symlink.
pub fn link_name(pod: &Pod, container: &str, container_id: &str) -> String {
    let mut name = format!("{}_{container}-{container_id}", pod.full_name());
    name.truncate(name.floor_char_boundary(LONGEST_FILE_NAME - LINK_SUFFIX.len()));
    name + LINK_SUFFIX
}

pub(crate) fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}
