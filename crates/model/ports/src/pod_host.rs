//! The ports to the host that a pod needs: its directories, cgroups, volumes, records.
//!
//! Rule: every method is idempotent and complete, makes no choices, and opens files of a pod's
//! directory beneath a root (no symlink leads out). Paths that are passed to a runtime come back
//! from here as text. Calls may block on a disk or the kernel; implementations bound them and never
//! exhaust a thread pool.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::PortFuture;
use crate::runtime_objects::CgroupDriver;

/// An error of the host, with the path and the next step in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Retry later: busy, no space, interrupted, a timeout.
    #[error("{0}")]
    Transient(String),
    /// It will fail again in the same way until an operator changes something.
    #[error("{0}")]
    Permanent(String),
}

pub type HostFuture<'a, T> = PortFuture<'a, Result<T, HostError>>;

/// A file to write into a pod's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFile {
    /// Relative to `<root>/pods/<uid>`; never leaves it.
    pub path: String,
    pub content: Vec<u8>,
    pub mode: u32,
}

/// Directories and files of pods under `<root>/pods/<uid>`, and their log directories.
pub trait PodDirs: Send + Sync {
    /// Creates `pods/<uid>` with `volumes`, `plugins`, `containers` (0750) and the log directory
    /// (absolute, 0755) of the pod.
    fn make_pod<'a>(&'a self, uid: &'a str, log_directory: &'a str) -> HostFuture<'a, ()>;
    /// Creates the log directory of a container and an empty termination message file of mode 0666;
    /// returns the absolute path of the latter (with an empty name none is created).
    fn make_container<'a>(
        &'a self,
        uid: &'a str,
        container: &'a str,
        termination_file: &'a str,
        log_directory: &'a str,
    ) -> HostFuture<'a, PathBuf>;
    /// Writes a whole file and returns its absolute path.
    fn write<'a>(&'a self, uid: &'a str, file: &'a PodFile) -> HostFuture<'a, PathBuf>;
    /// Creates the symlink in the directory that log shippers read; an older one is replaced.
    fn link_log<'a>(&'a self, link_name: &'a str, target: &'a str) -> HostFuture<'a, ()>;
    /// The last `most` bytes of a regular file named by a container (opened beneath, no device, no
    /// FIFO, no symlink out); None where it is not there.
    fn read_tail<'a>(&'a self, path: &'a str, most: usize) -> HostFuture<'a, Option<Vec<u8>>>;
    /// The highest restart count found among a container's log files.
    fn highest_log_number<'a>(&'a self, log_directory: &'a str) -> HostFuture<'a, Option<u32>>;
    /// UIDs of the pods that have a directory here.
    fn pods(&self) -> HostFuture<'_, Vec<String>>;
    /// Removes a pod's directory. Fails while something is mounted in it.
    fn remove_pod<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()>;
    /// Names of the pods' log directories: `<namespace>_<name>_<uid>`.
    fn pod_logs(&self) -> HostFuture<'_, Vec<String>>;
    fn remove_pod_log<'a>(&'a self, dir: &'a str) -> HostFuture<'a, ()>;
    /// Removes one container's log file with its rotated ones.
    fn remove_container_log<'a>(&'a self, path: &'a str) -> HostFuture<'a, ()>;
    /// Removes symlinks whose log is gone, except those to these paths.
    fn remove_dead_links(&self, keep: BTreeSet<String>) -> HostFuture<'_, ()>;
}

/// Limits of a cgroup. None leaves the kernel's default.
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
    /// cgroup v2 only: other files and their values.
    pub unified: Vec<(String, String)>,
}

/// cgroups by the names of the reference: a list such as `["kubepods", "burstable", "pod<uid>"]`;
/// the driver (cgroupfs or systemd) turns them into paths.
///
/// The runtime reports which driver it uses; until the agent has passed that on, calls wait, so
/// that no cgroup is created where the runtime would not look for it. A call that waits too long
/// fails with an error that says so.
pub trait PodCgroups: Send + Sync {
    /// The driver that the runtime reports; None where it reports none, and the configured one
    /// applies. The first call wins.
    fn set_driver(&self, driver: Option<CgroupDriver>);
    /// Creates the cgroup and its parents and sets the limits.
    fn apply<'a>(&'a self, name: &'a [String], limits: &'a CgroupLimits) -> HostFuture<'a, ()>;
    /// Sets limits on a cgroup that is not ours, named as the configuration names it
    /// (`/system.slice`, `/system`); fails where it does not exist.
    fn set_limits_of_existing<'a>(
        &'a self,
        path: &'a str,
        limits: &'a CgroupLimits,
    ) -> HostFuture<'a, ()>;
    /// Kills what still runs in it and removes it with all its children.
    fn remove<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, ()>;
    /// The last parts of the children's names, in the reference's form.
    fn children<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Vec<String>>;
    /// The cgroup parent in the runtime's form (`/kubepods/...` or `kubepods-....slice`).
    fn runtime_name<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, String>;
    /// How many processes the kernel OOM-killed since the cgroup was created, where it counts them.
    fn oom_kills<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Option<u64>>;
    /// Waits until the kernel has OOM-killed more processes in some direct child cgroup than
    /// `known` says; returns all of those counts that are not zero, by the last path component of
    /// each child. Watches the children that exist when it begins; an error where there is none.
    fn wait_for_oom_kills<'a>(
        &'a self,
        name: &'a [String],
        known: &'a BTreeMap<String, u64>,
    ) -> HostFuture<'a, BTreeMap<String, u64>>;
    /// Whether the machine uses the unified hierarchy.
    fn is_unified(&self) -> bool;
}

/// A process that the kernel OOM-killed because its cgroup reached its limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomKill {
    /// Nanoseconds since the epoch, as precise as the kernel's log.
    pub at: i64,
    /// Starts at one and increases with each kill until the machine reboots; reading the log again
    /// gives the same numbers.
    pub order: u64,
    pub process: String,
    pub pid: i32,
    /// The cgroup that reached its limit, and the cgroup of the victim.
    pub limited_cgroup: String,
    pub victim_cgroup: String,
    /// Resident memory of the process: anonymous, shared and file pages.
    pub resident_bytes: u64,
    /// It did not exceed the limit itself: it was killed together with its cgroup
    /// (`memory.oom.group`), after the victim that was reported before.
    pub is_group_kill: bool,
}

/// A stream of OOM kills from the kernel log.
pub trait OomKillLog: Send {
    fn next(&mut self) -> PortFuture<'_, OomKill>;
}

/// The source of a volume, for the kinds that the host itself can provide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostVolume {
    /// A directory of the pod on disk.
    EmptyDirectory { name: String },
    /// tmpfs (or hugetlbfs of a page size), with a size limit in bytes where there is one.
    MemoryDirectory { name: String, size: Option<u64>, huge_page_size: Option<String> },
    /// A path of the host; the kind as the API names it (`DirectoryOrCreate`, empty, ...).
    HostPath { name: String, path: String, kind: String },
    /// Files that the agent writes. Setting it up again replaces all of them at once; a container
    /// sees the old files or the new ones, never some of each.
    Payload {
        name: String,
        kind: PayloadVolumeKind,
        /// Limit in bytes where it is in memory.
        size: Option<u64>,
        files: Arc<Vec<PayloadFile>>,
        /// Directories in it on which other volumes are mounted, relative: it is mounted read-only,
        /// so a runtime could not create them.
        mount_points: Vec<String>,
    },
}

impl HostVolume {
    pub fn name(&self) -> &str {
        match self {
            Self::EmptyDirectory { name }
            | Self::MemoryDirectory { name, .. }
            | Self::HostPath { name, .. }
            | Self::Payload { name, .. } => name,
        }
    }
}

/// The kinds of volumes whose content comes from the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadVolumeKind {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

impl PayloadVolumeKind {
    pub const ALL: [Self; 4] = [Self::ConfigMap, Self::Secret, Self::DownwardApi, Self::Projected];

    /// The name of its directory among a pod's volumes.
    pub fn plugin_dir(self) -> &'static str {
        match self {
            Self::ConfigMap => "kubernetes.io~configmap",
            Self::Secret => "kubernetes.io~secret",
            Self::DownwardApi => "kubernetes.io~downward-api",
            Self::Projected => "kubernetes.io~projected",
        }
    }

    /// Whether its files never reach a disk.
    pub fn is_in_memory(self) -> bool {
        self != Self::ConfigMap
    }
}

/// A file of such a volume. Its content may be secret, so its debug form shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    /// Relative to the volume; may have several components.
    pub path: String,
    pub mode: u32,
    pub owner: Option<u32>,
    pub content: Vec<u8>,
}

impl fmt::Debug for PayloadFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PayloadFile")
            .field("path", &self.path)
            .field("mode", &self.mode)
            .field("owner", &self.owner)
            .field("bytes", &self.content.len())
            .finish()
    }
}

/// Ownership of a volume: the group that `fsGroup` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeOwnership {
    pub group: Option<i64>,
    pub only_when_root_differs: bool,
}

/// A volume driver.
pub trait VolumeDriver: Send + Sync {
    /// Mounts the volume; returns the path that containers will see.
    fn set_up<'a>(
        &'a self,
        uid: &'a str,
        volume: &'a HostVolume,
        ownership: &'a VolumeOwnership,
    ) -> HostFuture<'a, PathBuf>;
    /// Opens `sub_path` beneath the volume without following a symlink out of it, creates it where
    /// it is missing, and pins it; returns a path that cannot be swapped afterwards.
    fn pin_sub_path<'a>(&'a self, uid: &'a str, request: &'a SubPath) -> HostFuture<'a, PathBuf>;
    /// Reads a small regular file of a volume whole, following no symlink out of it; a file longer
    /// than the limit is an error.
    fn read_file<'a>(&'a self, file: &'a VolumeFile) -> HostFuture<'a, Vec<u8>>;
    /// Releases the sub-paths of one container.
    fn release_sub_paths<'a>(&'a self, uid: &'a str, container: &'a str) -> HostFuture<'a, ()>;
    /// Unmounts every volume and sub-path of the pod and removes those on disk.
    fn tear_down<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath {
    pub volume: String,
    pub volume_path: PathBuf,
    pub sub_path: String,
    pub container: String,
    /// The index of the mount in the container's list.
    pub mount_index: usize,
}

/// A file in a volume of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    pub volume_path: PathBuf,
    /// Relative to the root of the volume.
    pub path: String,
    /// Limit in bytes.
    pub most: usize,
}

/// The content of a directory of records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadedRecords {
    pub records: Vec<(String, Vec<u8>)>,
    /// Records that could not be read, each with the error; they stay on disk.
    pub unreadable: Vec<String>,
}

/// Small records that outlive the agent, under `<root>/keelson/`. A write is durable and atomic
/// when it returns.
pub trait AgentRecords: Send + Sync {
    /// All records of a directory, such as `pods`.
    fn load<'a>(&'a self, dir: &'a str) -> HostFuture<'a, LoadedRecords>;
    fn save<'a>(&'a self, dir: &'a str, name: &'a str, content: Vec<u8>) -> HostFuture<'a, ()>;
    fn remove<'a>(&'a self, dir: &'a str, name: &'a str) -> HostFuture<'a, ()>;
}
