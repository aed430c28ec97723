//! Directories of pods, their logs and links, and the records that outlive the agent.
//!
//! Rule: everything is reached beneath the root that it belongs to, no symlink followed; modes and
//! names are upstream's, so that the agent finds what a reference kubelet left, and the other way
//! round. Calls run on threads of their own, apart from the async runtime's, with a limit. Decides
//! nothing about which pod or record should exist.

mod host_error;
mod log_files;
mod logs;
mod pod_dirs;
mod pull_records;
mod records;

pub use pod_dirs::HostPodDirs;
pub use pull_records::HostPullRecords;
pub use records::HostRecords;
