//! Folders of pods, their logs and links, and the records that outlive the agent.
//!
//! Rule: everything is reached beneath the root that it belongs to, no symlink followed; modes and
//! names are upstream's, so that what a reference kubelet left is found and what we leave it finds.
//! Calls run apart from the runtime's threads under a limit. Decides nothing about which pod or
//! record should be there.

mod failure;
mod folders;
mod log_files;
mod logs;
mod pull_records;
mod records;

pub use folders::HostFolders;
pub use pull_records::HostPullRecords;
pub use records::HostRecords;
