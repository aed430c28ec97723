//! The specification of a container, of its pod's namespaces and of a process in it: plain values
//! that are sent over a socket and stored in files.
//!
//! Rule: field numbers never change and fields are only added, because a supervisor may be older or
//! newer than its server. Every choice has been made before: names are resolved, paths absolute,
//! filters compiled. Close to the OCI runtime configuration, without its history.

use std::collections::BTreeMap;

/// Which namespace a container gets. The numbers are CRI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NamespaceMode {
    /// The pod's, which its supervisor holds.
    Pod = 0,
    /// A new one.
    Container = 1,
    /// The host's.
    Node = 2,
    /// The one of another container of the pod.
    Target = 3,
}

/// A pod's namespaces.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSpec {
    #[prost(string, tag = "1")]
    pub id: String,
    /// Empty: the host's name is kept, as pods on the host network need it.
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// Pod or Node.
    #[prost(enumeration = "NamespaceMode", tag = "3")]
    pub network: i32,
    /// Pod or Node.
    #[prost(enumeration = "NamespaceMode", tag = "4")]
    pub ipc: i32,
    /// Pod where the containers share one PID namespace; else Container or Node.
    #[prost(enumeration = "NamespaceMode", tag = "5")]
    pub pid: i32,
    /// None: the host's user namespace.
    #[prost(message, optional, tag = "6")]
    pub user_namespace: Option<IdMappings>,
    /// Of the pod's network and IPC namespaces.
    #[prost(btree_map = "string, string", tag = "7")]
    pub sysctls: BTreeMap<String, String>,
    /// Where to pin the network namespace, so that other programs can name it; the file is created
    /// if missing. Empty: not pinned.
    #[prost(string, tag = "8")]
    pub network_pin: String,
    /// An existing network namespace to join, instead of a new one.
    #[prost(string, tag = "9")]
    pub network_path: String,
    /// Pod or Node. A pod on the host network keeps the host's name unless `hostname` is set.
    #[prost(enumeration = "NamespaceMode", tag = "10")]
    pub uts: i32,
    /// The `oom_score_adj` of the pod's init, if it has one.
    #[prost(int32, optional, tag = "11")]
    pub oom_score_adjustment: Option<i32>,
    /// The cgroup of the pod's init, if it has one: the pod's, so that it is accounted there.
    /// Empty: the supervisor's own.
    #[prost(string, tag = "12")]
    pub init_cgroup: String,
    /// The systemd scope to create as that cgroup, with its slice. Empty: created without systemd.
    #[prost(string, tag = "13")]
    pub init_unit: String,
    #[prost(string, tag = "14")]
    pub init_slice: String,
}

/// Id ranges of a user namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct IdMappings {
    #[prost(message, repeated, tag = "1")]
    pub users: Vec<IdRange>,
    #[prost(message, repeated, tag = "2")]
    pub groups: Vec<IdRange>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IdRange {
    #[prost(uint32, tag = "1")]
    pub inside: u32,
    #[prost(uint32, tag = "2")]
    pub outside: u32,
    #[prost(uint32, tag = "3")]
    pub count: u32,
}

/// The complete specification of a container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerSpec {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub root: Option<RootFilesystem>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessSpec>,
    #[prost(message, optional, tag = "4")]
    pub security: Option<SecuritySpec>,
    /// In order; a later one may be inside an earlier one.
    #[prost(message, repeated, tag = "5")]
    pub mounts: Vec<MountSpec>,
    #[prost(message, repeated, tag = "6")]
    pub devices: Vec<DeviceNode>,
    #[prost(message, optional, tag = "7")]
    pub cgroup: Option<CgroupSpec>,
    #[prost(message, optional, tag = "8")]
    pub namespaces: Option<ContainerNamespaces>,
    #[prost(string, repeated, tag = "9")]
    pub masked_paths: Vec<String>,
    #[prost(string, repeated, tag = "10")]
    pub read_only_paths: Vec<String>,
    #[prost(message, optional, tag = "11")]
    pub streams: Option<StreamsSpec>,
    /// Sysctls of the container's own namespaces.
    #[prost(btree_map = "string, string", tag = "12")]
    pub sysctls: BTreeMap<String, String>,
    /// Mount options of procfs (hidepid and the like).
    #[prost(string, repeated, tag = "13")]
    pub proc_options: Vec<String>,
    /// An OCI runtime that creates and deletes the container. None: created here.
    #[prost(message, optional, tag = "14")]
    pub handler: Option<HandlerSpec>,
    /// The SELinux label of the container's files: of its root overlay and of the filesystems that
    /// are created for it. Empty: the kernel's default.
    #[prost(string, tag = "15")]
    pub mount_label: String,
    /// Hooks that run here during creation; see `handler` for those of an OCI runtime.
    #[prost(message, repeated, tag = "16")]
    pub hooks: Vec<HookSpec>,
    /// With hooks: a directory with a `config.json` and an empty directory `rootfs`, in which the
    /// root is mounted while hooks run.
    #[prost(string, tag = "17")]
    pub bundle: String,
}

/// An OCI runtime of the host that is called by its command line.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HandlerSpec {
    /// An absolute path.
    #[prost(string, tag = "1")]
    pub program: String,
    /// Before the command, such as `--debug`.
    #[prost(string, repeated, tag = "2")]
    pub arguments: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub hooks: Vec<HookSpec>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
    /// The pod's hostname, for a runtime that creates sandboxes and does not look into the pod's
    /// namespaces; empty on the host network.
    #[prost(string, tag = "5")]
    pub hostname: String,
}

/// A program of the host that runs at some point of a container's life cycle.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HookSpec {
    /// The OCI name, such as `createRuntime`.
    #[prost(string, tag = "1")]
    pub point: String,
    #[prost(string, tag = "2")]
    pub path: String,
    #[prost(string, repeated, tag = "3")]
    pub arguments: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub environment: Vec<String>,
    /// In seconds. 0: none.
    #[prost(uint32, tag = "5")]
    pub timeout: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerNamespaces {
    /// Pod, Container, Node or Target.
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub pid: i32,
    /// The container whose PID namespace Target means.
    #[prost(string, tag = "2")]
    pub pid_target: String,
    /// Pod or Node.
    #[prost(enumeration = "NamespaceMode", tag = "3")]
    pub network: i32,
    /// Pod, Container or Node.
    #[prost(enumeration = "NamespaceMode", tag = "4")]
    pub ipc: i32,
    /// Pod or Node.
    #[prost(enumeration = "NamespaceMode", tag = "5")]
    pub uts: i32,
    /// Container or Node.
    #[prost(enumeration = "NamespaceMode", tag = "6")]
    pub cgroup: i32,
    /// Pod (the pod's user namespace, if it has one) or Node.
    #[prost(enumeration = "NamespaceMode", tag = "7")]
    pub user: i32,
}

/// The container's `/`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RootFilesystem {
    /// A directory, or an overlay that is already mounted. Used if `overlay` is not set.
    #[prost(string, tag = "1")]
    pub path: String,
    /// An overlay to mount for this container alone; required with a user namespace, because only
    /// its layers can be id-mapped.
    #[prost(message, optional, tag = "2")]
    pub overlay: Option<OverlaySpec>,
    #[prost(bool, tag = "3")]
    pub read_only: bool,
    /// Files have the pod's ids: set with a user namespace unless the files were changed for it.
    #[prost(bool, tag = "4")]
    pub map_ids: bool,
    #[prost(enumeration = "Propagation", tag = "5")]
    pub propagation: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OverlaySpec {
    /// The uppermost first.
    #[prost(string, repeated, tag = "1")]
    pub lower: Vec<String>,
    /// Empty: read-only.
    #[prost(string, tag = "2")]
    pub upper: String,
    #[prost(string, tag = "3")]
    pub work: String,
    /// Further options, such as `index=off`, `volatile`.
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Propagation {
    Private = 0,
    /// From the host into the container.
    Slave = 1,
    /// In both directions.
    Shared = 2,
    Unbindable = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MountKind {
    /// A file or directory of the host.
    Bind = 0,
    Tmpfs = 1,
    Proc = 2,
    Sysfs = 3,
    Mqueue = 4,
    Devpts = 5,
    /// The container's cgroups, whatever the version.
    Cgroup = 6,
    /// `/dev`: a tmpfs with the usual nodes and links; pts and mqueue are mounts of their own.
    Dev = 7,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MountSpec {
    #[prost(enumeration = "MountKind", tag = "1")]
    pub kind: i32,
    /// Of a bind: an absolute path of the host.
    #[prost(string, tag = "2")]
    pub source: String,
    /// An absolute path in the container, created if missing.
    #[prost(string, tag = "3")]
    pub target: String,
    #[prost(bool, tag = "4")]
    pub read_only: bool,
    /// Read-only including all mounts beneath the source.
    #[prost(bool, tag = "5")]
    pub recursive_read_only: bool,
    #[prost(bool, tag = "6")]
    pub no_suid: bool,
    #[prost(bool, tag = "7")]
    pub no_exec: bool,
    #[prost(bool, tag = "8")]
    pub no_dev: bool,
    #[prost(enumeration = "Propagation", tag = "9")]
    pub propagation: i32,
    /// Options of the filesystem, such as `size=65536k`, `mode=755`.
    #[prost(string, repeated, tag = "10")]
    pub options: Vec<String>,
    /// Of a bind: without the mounts beneath the source.
    #[prost(bool, tag = "11")]
    pub not_recursive: bool,
    /// An id-mapped mount; without ranges those of the pod's user namespace.
    #[prost(message, optional, tag = "12")]
    pub id_mappings: Option<IdMappings>,
    #[prost(bool, tag = "13")]
    pub map_ids: bool,
    /// Of a bind: follow no symbolic link in the source (it was resolved before).
    #[prost(bool, tag = "14")]
    pub no_symlinks_in_source: bool,
    /// Of a bind: a path beneath the source, resolved without leaving it whatever its links say.
    #[prost(string, tag = "15")]
    pub sub_path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceNode {
    /// The path in the container.
    #[prost(string, tag = "1")]
    pub path: String,
    /// `c`, `b` or `p`.
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(uint32, tag = "3")]
    pub major: u32,
    #[prost(uint32, tag = "4")]
    pub minor: u32,
    #[prost(uint32, tag = "5")]
    pub mode: u32,
    #[prost(uint32, tag = "6")]
    pub uid: u32,
    #[prost(uint32, tag = "7")]
    pub gid: u32,
    /// The host's node; used where a node cannot be created (user namespaces).
    #[prost(string, tag = "8")]
    pub source: String,
}

/// The container's cgroup and its limits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CgroupSpec {
    /// From the root of the hierarchies.
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(message, optional, tag = "2")]
    pub limits: Option<LimitsSpec>,
    /// Empty and `all_devices` not set: only the devices of every container.
    #[prost(message, repeated, tag = "3")]
    pub device_rules: Vec<DeviceRuleSpec>,
    #[prost(bool, tag = "4")]
    pub all_devices: bool,
    /// The systemd scope to create, with its slice. Empty: created without systemd.
    #[prost(string, tag = "5")]
    pub systemd_unit: String,
    #[prost(string, tag = "6")]
    pub systemd_slice: String,
}

/// [`cgroup_files::CgroupResources`] in their wire form.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LimitsSpec {
    #[prost(uint64, optional, tag = "1")]
    pub cpu_shares: Option<u64>,
    #[prost(int64, optional, tag = "2")]
    pub cpu_quota: Option<i64>,
    #[prost(uint64, optional, tag = "3")]
    pub cpu_period: Option<u64>,
    #[prost(string, optional, tag = "4")]
    pub cpuset_cpus: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub cpuset_mems: Option<String>,
    #[prost(int64, optional, tag = "6")]
    pub memory: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub memory_and_swap: Option<i64>,
    #[prost(int64, optional, tag = "8")]
    pub memory_reservation: Option<i64>,
    #[prost(int64, optional, tag = "9")]
    pub pids: Option<i64>,
    #[prost(btree_map = "string, uint64", tag = "10")]
    pub huge_pages: BTreeMap<String, u64>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub unified: BTreeMap<String, String>,
    #[prost(bool, optional, tag = "12")]
    pub cpu_idle: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceRuleSpec {
    #[prost(bool, tag = "1")]
    pub allow: bool,
    /// `a`, `c` or `b`.
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(uint32, optional, tag = "3")]
    pub major: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub minor: Option<u32>,
    /// Of `rwm`.
    #[prost(string, tag = "5")]
    pub access: String,
}

/// The process of a container or of an exec.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessSpec {
    #[prost(string, repeated, tag = "1")]
    pub arguments: Vec<String>,
    /// `NAME=value`.
    #[prost(string, repeated, tag = "2")]
    pub environment: Vec<String>,
    /// Empty: `/`. Created if missing (for a container only).
    #[prost(string, tag = "3")]
    pub working_directory: String,
    #[prost(bool, tag = "4")]
    pub terminal: bool,
    #[prost(message, optional, tag = "5")]
    pub terminal_size: Option<TerminalSize>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TerminalSize {
    #[prost(uint32, tag = "1")]
    pub columns: u32,
    #[prost(uint32, tag = "2")]
    pub rows: u32,
}

/// The privileges of a process. Stored, so that an exec gets the same.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SecuritySpec {
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    #[prost(uint32, repeated, tag = "3")]
    pub additional_gids: Vec<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub umask: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub capabilities: Option<CapabilitySpec>,
    #[prost(bool, tag = "6")]
    pub no_new_privileges: bool,
    /// None: no filter.
    #[prost(message, optional, tag = "7")]
    pub seccomp: Option<SeccompSpec>,
    /// Empty: none.
    #[prost(string, tag = "8")]
    pub apparmor_profile: String,
    #[prost(string, tag = "9")]
    pub selinux_label: String,
    #[prost(message, repeated, tag = "10")]
    pub limits: Vec<ProcessLimit>,
    #[prost(int32, optional, tag = "11")]
    pub oom_score_adjustment: Option<i32>,
}

/// Capability sets as bits: bit N is capability number N.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CapabilitySpec {
    #[prost(uint64, tag = "1")]
    pub bounding: u64,
    #[prost(uint64, tag = "2")]
    pub effective: u64,
    #[prost(uint64, tag = "3")]
    pub permitted: u64,
    #[prost(uint64, tag = "4")]
    pub inheritable: u64,
    #[prost(uint64, tag = "5")]
    pub ambient: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SeccompSpec {
    /// The kernel's `struct sock_filter` instructions in this host's byte order, 8 bytes each.
    #[prost(bytes = "vec", tag = "1")]
    pub program: Vec<u8>,
    #[prost(bool, tag = "2")]
    pub log: bool,
    #[prost(bool, tag = "3")]
    pub allow_speculation: bool,
    /// The same in OCI's JSON form; only for a handler.
    #[prost(string, tag = "4")]
    pub document: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessLimit {
    /// A resource of setrlimit(2), such as `RLIMIT_NOFILE`.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub soft: u64,
    #[prost(uint64, tag = "3")]
    pub hard: u64,
}

/// The configuration of a container's standard streams.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamsSpec {
    /// The log in CRI's format. Empty: nothing is written.
    #[prost(string, tag = "1")]
    pub log_path: String,
    /// Standard input can be attached; otherwise it is empty.
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    /// Standard input is closed when the first attached client has left.
    #[prost(bool, tag = "3")]
    pub stdin_once: bool,
    /// Longer lines are split. 0: 16 KiB.
    #[prost(uint32, tag = "4")]
    pub longest_line: u32,
    /// The directory of the log that the client named; no link below it is followed. Empty: the
    /// directory of the log.
    #[prost(string, tag = "5")]
    pub log_dir: String,
}
