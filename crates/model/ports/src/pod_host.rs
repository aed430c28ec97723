//! The seams to this machine that a pod needs: its folders, cgroups, volumes, records.
//!
//! Rule: every method is idempotent and complete, does what it is told, and opens what lies under a
//! pod's folder beneath a root. Paths that a runtime is told come back from here as text. Calls may
//! block on a disk or a kernel; implementations bound them and never take down a thread pool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::PortFuture;
use crate::runtime_objects::CgroupDriver;

/// What went wrong on this machine, with the path and the next step in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Try again later: busy, no space, interrupted, a limit passed.
    #[error("{0}")]
    Passing(String),
    /// It will fail again in the same way until somebody changes something.
    #[error("{0}")]
    Lasting(String),
}

pub type HostFuture<'a, T> = PortFuture<'a, Result<T, HostError>>;

/// A file to put into a pod's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFile {
    /// Relative to `<root>/pods/<uid>`; never leaves it.
    pub path: String,
    pub content: Vec<u8>,
    pub mode: u32,
}

/// Folders and files of pods under `<root>/pods/<uid>` and the log folders.
pub trait PodFolders: Send + Sync {
    /// Makes `pods/<uid>` with `volumes`, `plugins`, `containers` (0750) and the log folder
    /// (absolute, 0755) of the pod.
    fn make_pod<'a>(&'a self, uid: &'a str, log_directory: &'a str) -> HostFuture<'a, ()>;
    /// Makes the log folder of a container and an empty termination message file of mode 0666;
    /// answers with the message file's absolute path (empty name: none is made).
    fn make_container<'a>(
        &'a self,
        uid: &'a str,
        container: &'a str,
        termination_file: &'a str,
        log_directory: &'a str,
    ) -> HostFuture<'a, PathBuf>;
    /// Writes a file whole and answers with its absolute path.
    fn write<'a>(&'a self, uid: &'a str, file: &'a PodFile) -> HostFuture<'a, PathBuf>;
    /// Makes the symlink in the folder that log shippers read; an older one is replaced.
    fn link_log<'a>(&'a self, link_name: &'a str, target: &'a str) -> HostFuture<'a, ()>;
    /// The last `most` bytes of a regular file named by a container (opened beneath, no device, no
    /// FIFO, no symlink out); None where it is not there.
    fn read_tail<'a>(&'a self, path: &'a str, most: usize) -> HostFuture<'a, Option<Vec<u8>>>;
    /// The highest restart count found among a container's log files.
    fn highest_log_number<'a>(&'a self, log_directory: &'a str) -> HostFuture<'a, Option<u32>>;
    /// UIDs of the pods that have a folder here.
    fn pods(&self) -> HostFuture<'_, Vec<String>>;
    /// Removes a pod's folder. Refuses while something is mounted in it.
    fn remove_pod<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()>;
    /// Log folders of pods: `<namespace>_<name>_<uid>`.
    fn pod_logs(&self) -> HostFuture<'_, Vec<String>>;
    fn remove_pod_log<'a>(&'a self, folder: &'a str) -> HostFuture<'a, ()>;
    /// Removes one container's log file with its rotated ones.
    fn remove_container_log<'a>(&'a self, path: &'a str) -> HostFuture<'a, ()>;
    /// Removes links whose log is gone, but for those to these paths.
    fn remove_dead_links(&self, keep: BTreeSet<String>) -> HostFuture<'_, ()>;
}

/// What a cgroup is to hold back. None leaves the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    pub cpu_shares: Option<u64>,
    /// Microseconds per period; -1 for none.
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub memory_bytes: Option<i64>,
    pub pids: Option<i64>,
    /// Page size (such as `2MB`) and bytes.
    pub hugepages: Vec<(String, u64)>,
    /// cgroup v2 only: further files and values.
    pub unified: Vec<(String, String)>,
}

/// cgroups by the names of the reference: a list such as `["kubepods", "burstable", "pod<uid>"]`;
/// the driver (cgroupfs or systemd) makes paths of them.
///
/// The runtime says which driver it uses; until somebody has passed that on, calls wait, so that
/// nothing is made where the runtime would not look for it. They do not wait for ever: a call that
/// has waited too long fails and says so.
pub trait PodCgroups: Send + Sync {
    /// What the runtime says of its driver; None where it cannot tell, and the configuration counts.
    /// What was learned first holds.
    fn learn_driver(&self, driver: Option<CgroupDriver>);
    /// Makes the cgroup and its parents and sets the limits.
    fn apply<'a>(&'a self, name: &'a [String], limits: &'a CgroupLimits) -> HostFuture<'a, ()>;
    /// Sets limits at a cgroup of somebody else's, named as the configuration names it
    /// (`/system.slice`, `/system`); refuses where it is not there.
    fn limit_existing<'a>(&'a self, path: &'a str, limits: &'a CgroupLimits) -> HostFuture<'a, ()>;
    /// Ends what still runs in it and removes it with all beneath.
    fn remove<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, ()>;
    /// The last parts of the children's names, in the reference's form.
    fn children<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Vec<String>>;
    /// As a runtime wants to be told its parent (`/kubepods/...` or `kubepods-....slice`).
    fn runtime_name<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, String>;
    /// Processes that the kernel killed for memory since the cgroup began, where it can tell.
    fn memory_kills<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Option<u64>>;
    /// Waits until the kernel has killed more processes in some group right below than `known` says;
    /// answers with all of those counts that are not zero, by the last part of each group's path as
    /// it is. For the groups that are there when it begins; a failure where none is.
    fn more_memory_kills<'a>(
        &'a self,
        name: &'a [String],
        known: &'a BTreeMap<String, u64>,
    ) -> HostFuture<'a, BTreeMap<String, u64>>;
    /// Whether the machine uses the unified hierarchy.
    fn is_unified(&self) -> bool;
}

/// A process that the kernel killed because its cgroup had no memory left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryKill {
    /// Nanoseconds since the epoch, as near as the kernel's log tells.
    pub at: i64,
    /// Rises from kill to kill as long as the machine runs, from one; whoever reads the log again
    /// finds the same.
    pub order: u64,
    pub process: String,
    pub pid: i32,
    /// The cgroup that ran out, and the one that the victim was in.
    pub limited_cgroup: String,
    pub victim_cgroup: String,
    /// All that the process held in memory: its own, shared, and of files.
    pub resident_bytes: u64,
    /// It took no memory that was not there: all of its cgroup were killed with the one that did,
    /// which was told of before.
    pub with_its_group: bool,
}

/// Kernel messages of processes killed for memory.
pub trait MemoryKills: Send {
    fn next(&mut self) -> PortFuture<'_, MemoryKill>;
}

/// What a volume is made of, for the kinds that the machine itself can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostVolume {
    /// A folder of the pod's on disk.
    EmptyDirectory { name: String },
    /// tmpfs (or hugetlbfs of a page size), with a size limit in bytes where there is one.
    MemoryDirectory { name: String, size: Option<u64>, huge_page_size: Option<String> },
    /// A path of the host's; the kind as the API names it (`DirectoryOrCreate`, empty, ...).
    HostPath { name: String, path: String, kind: String },
}

impl HostVolume {
    pub fn name(&self) -> &str {
        match self {
            Self::EmptyDirectory { name }
            | Self::MemoryDirectory { name, .. }
            | Self::HostPath { name, .. } => name,
        }
    }
}

/// Who may use a volume: group ownership as `fsGroup` asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeOwnership {
    pub group: Option<i64>,
    pub only_when_root_differs: bool,
}

/// A driver of volumes.
pub trait VolumeDriver: Send + Sync {
    /// Makes the volume ready; answers with the path that containers will see.
    fn set_up<'a>(
        &'a self,
        uid: &'a str,
        volume: &'a HostVolume,
        ownership: &'a VolumeOwnership,
    ) -> HostFuture<'a, PathBuf>;
    /// Opens `sub_path` beneath the volume without following anything out of it, makes it where it
    /// is missing, and pins it; answers with a path that stays what it was.
    fn pin_sub_path<'a>(&'a self, uid: &'a str, request: &'a SubPath) -> HostFuture<'a, PathBuf>;
    /// Reads a small regular file of a volume whole, following no link out of it; refuses a longer
    /// one than asked for.
    fn read_file<'a>(&'a self, file: &'a VolumeFile) -> HostFuture<'a, Vec<u8>>;
    /// Lets go of the sub-paths of one container.
    fn release_sub_paths<'a>(&'a self, uid: &'a str, container: &'a str) -> HostFuture<'a, ()>;
    /// Takes down every volume and sub-path of the pod and removes the disk ones.
    fn tear_down<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath {
    pub volume: String,
    pub volume_path: PathBuf,
    pub sub_path: String,
    pub container: String,
    /// The place of the mount in the container's list.
    pub mount_index: usize,
}

/// A file in a volume of the pod's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    pub volume_path: PathBuf,
    /// From the root of the volume.
    pub path: String,
    /// Bytes.
    pub most: usize,
}

/// What was found in a folder of records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadedRecords {
    pub records: Vec<(String, Vec<u8>)>,
    /// What could not be read, each with why; left where it is.
    pub unreadable: Vec<String>,
}

/// Small records of ours that outlive the agent, under `<root>/keelson/`. A write is durable and
/// whole when it returns.
pub trait Records: Send + Sync {
    /// All records of a folder, such as `pods`.
    fn load<'a>(&'a self, folder: &'a str) -> HostFuture<'a, LoadedRecords>;
    fn save<'a>(&'a self, folder: &'a str, name: &'a str, content: Vec<u8>) -> HostFuture<'a, ()>;
    fn remove<'a>(&'a self, folder: &'a str, name: &'a str) -> HostFuture<'a, ()>;
}
