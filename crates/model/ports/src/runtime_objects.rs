//! The objects that the agent and a container runtime exchange: sandboxes, containers, images.
//!
//! Rule: the shape is that of CRI v1 on Linux, as plain values without a transport; a field holds
//! exactly what the runtime receives or has returned. Nothing is derived here: what a label or an
//! annotation means is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub type Labels = BTreeMap<String, String>;

/// A pod's sandbox as the runtime reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxRecord {
    pub id: String,
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub attempt: u32,
    pub ready: bool,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// First the main address; empty on the host network or while there is none.
    pub ips: Vec<String>,
    /// None where the runtime did not report it (in a listing).
    pub host_network: Option<bool>,
    pub runtime_handler: String,
    pub labels: Labels,
    pub annotations: Labels,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    /// The runtime reports unknown, or a value that is not known here.
    #[default]
    Unknown,
}

/// A container as the runtime reports it. Fields that only a status has (not a listing) are empty
/// or zero in what comes from a listing; the port's `observe` methods always give statuses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerRecord {
    pub id: String,
    pub sandbox_id: String,
    pub name: String,
    pub attempt: u32,
    pub state: ContainerState,
    /// Nanoseconds since the epoch; zero where it has not happened.
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    /// The runtime's reason, such as `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    pub message: String,
    /// As the container's configuration named it.
    pub image: String,
    /// The image ref that the runtime resolved it to.
    pub image_ref: String,
    pub image_id: String,
    /// Absolute.
    pub log_path: String,
    pub labels: Labels,
    pub annotations: Labels,
    pub resources: Option<LinuxResources>,
    pub user: Option<LinuxUser>,
    /// Its mounts, with which of them are recursively read-only.
    pub mounts: Vec<Mount>,
    /// As a pod names it (`SIGTERM`, `SIGRTMIN+1`); empty where the runtime does not report it.
    pub stop_signal: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinuxUser {
    pub uid: i64,
    pub gid: i64,
    pub supplemental_groups: Vec<i64>,
}

/// The runtime's state of one pod (or of all of them).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimePods {
    pub sandboxes: Vec<SandboxRecord>,
    pub containers: Vec<ContainerRecord>,
    /// Pods of which some status could not be read, each with the error. They are missing from the
    /// lists above: not gone, only unknown this time.
    pub unreadable_pods: Vec<UnreadablePod>,
}

/// By the UID of the pod: each of its sandboxes and containers with its state, as opaque text that
/// is only meaningful compared with another listing.
pub type ListedPods = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnreadablePod {
    pub uid: String,
    /// As the listing names it; empty where it does not.
    pub namespace: String,
    pub name: String,
    /// Whether it has a kubelet's labels: other clients may use the runtime too.
    pub is_kubelet_pod: bool,
    pub why: String,
}

/// An image as the runtime reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageRecord {
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    pub size: u64,
    /// The image's user when it is a number.
    pub uid: Option<i64>,
    /// The image's user when it is a name; empty otherwise.
    pub user_name: String,
    pub pinned: bool,
}

/// The image, and the runtime handler it is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSpec {
    pub image: String,
    pub user_specified_image: String,
    pub runtime_handler: String,
    pub annotations: Labels,
}

/// Credentials for a registry. The debug form shows nothing of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct RegistryLogin {
    pub username: String,
    pub password: String,
    pub auth: String,
    pub server_address: String,
    pub identity_token: String,
    pub registry_token: String,
}

impl std::fmt::Debug for RegistryLogin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("RegistryLogin(secret)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NamespaceMode {
    #[default]
    Pod,
    Container,
    Node,
    Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdMapping {
    pub host_id: u32,
    pub container_id: u32,
    pub length: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserNamespace {
    pub mode: NamespaceMode,
    pub uids: Vec<IdMapping>,
    pub gids: Vec<IdMapping>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceOptions {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    /// For `NamespaceMode::Target`.
    pub target_id: String,
    pub user: Option<UserNamespace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeLinuxLabel {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecurityProfile {
    #[default]
    RuntimeDefault,
    Unconfined,
    /// For seccomp an absolute path, for AppArmor a name.
    Localhost(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SupplementalGroupsPolicy {
    #[default]
    Merge,
    Strict,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinuxResources {
    pub cpu_period: i64,
    pub cpu_quota: i64,
    pub cpu_shares: i64,
    pub memory_limit: i64,
    pub memory_swap_limit: i64,
    pub oom_score_adj: i64,
    pub cpuset_cpus: String,
    pub cpuset_mems: String,
    /// Page size (such as `2MB`) and bytes.
    pub hugepage_limits: Vec<(String, u64)>,
    /// cgroup v2 files and their values.
    pub unified: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DnsConfig {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortMapping {
    pub protocol: Protocol,
    pub container_port: i32,
    pub host_port: i32,
    pub host_ip: String,
}

/// The configuration of a pod's sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxConfig {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub attempt: u32,
    pub hostname: String,
    pub log_directory: String,
    /// None leaves it to the runtime.
    pub dns: Option<DnsConfig>,
    pub port_mappings: Vec<PortMapping>,
    pub labels: Labels,
    pub annotations: Labels,
    pub cgroup_parent: String,
    pub sysctls: Labels,
    pub overhead: Option<LinuxResources>,
    pub resources: Option<LinuxResources>,
    pub security: SandboxSecurity,
    pub runtime_handler: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSecurity {
    pub namespaces: NamespaceOptions,
    pub selinux: Option<SeLinuxLabel>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub readonly_rootfs: bool,
    pub supplemental_groups: Vec<i64>,
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    pub privileged: bool,
    pub seccomp: Option<SecurityProfile>,
    pub apparmor: Option<SecurityProfile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mount {
    pub container_path: String,
    /// Empty for an image.
    pub host_path: String,
    pub readonly: bool,
    pub selinux_relabel: bool,
    pub propagation: Propagation,
    pub recursive_read_only: bool,
    pub uid_mappings: Vec<IdMapping>,
    pub gid_mappings: Vec<IdMapping>,
    pub image: Option<ImageSpec>,
    pub image_sub_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    pub container_path: String,
    pub host_path: String,
    /// Of the letters `rwm`.
    pub permissions: String,
}

/// The configuration of a container. The environment may hold secrets, so the debug form shows only
/// the names.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ContainerConfig {
    pub name: String,
    pub attempt: u32,
    pub image: ImageSpec,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub env: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub cdi_devices: Vec<String>,
    pub labels: Labels,
    pub annotations: Labels,
    /// Relative to the sandbox's log directory.
    pub log_path: String,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub resources: LinuxResources,
    pub security: ContainerSecurity,
    /// As a pod names it (`SIGTERM`, `SIGRTMIN+1`); empty for the image's own.
    pub stop_signal: String,
}

impl std::fmt::Debug for ContainerConfig {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        out.debug_struct("ContainerConfig")
            .field("name", &self.name)
            .field("attempt", &self.attempt)
            .field("image", &self.image.image)
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerSecurity {
    pub capabilities_add: Vec<String>,
    pub capabilities_drop: Vec<String>,
    pub privileged: bool,
    pub namespaces: NamespaceOptions,
    pub selinux: Option<SeLinuxLabel>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_username: String,
    pub readonly_rootfs: bool,
    pub supplemental_groups: Vec<i64>,
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    pub no_new_privs: bool,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub seccomp: Option<SecurityProfile>,
    pub apparmor: Option<SecurityProfile>,
}

/// Output and exit code of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeEventKind {
    Created,
    Started,
    Stopped,
    Deleted,
    /// An event type that is not known here; observe the pod all the same.
    Other,
}

/// A hint to observe this pod again: the content of the runtime's event is not trusted to be
/// complete. Only the exit state of a container is taken from it, since that never changes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    pub kind: RuntimeEventKind,
    /// The id of a container or a sandbox.
    pub id: String,
    /// Empty where the runtime did not send it.
    pub pod_uid: String,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// The container of that id, where it has exited, the event holds its exit state, and the pod's
    /// sandbox is ready. The event does not tell in which sandbox it is.
    pub ended: Option<Box<ContainerRecord>>,
}

/// An item of the event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeSignal {
    Event(RuntimeEvent),
    /// The stream is connected (again); observe what happened before.
    Connected,
    /// The stream is lost; it reconnects by itself. Most often the runtime is down too; once it is
    /// back, one of the other variants follows.
    Lost(String),
    /// After [`Self::Lost`]: the runtime answers, but gives no stream for now. The stream
    /// reconnects by itself; until then only polling shows changes.
    Refused(String),
    /// This runtime has no event stream. No events will ever come.
    Unsupported,
}

/// A filesystem that holds images or containers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesystemUsage {
    pub mountpoint: String,
    pub used_bytes: u64,
    pub inodes_used: u64,
    /// Nanoseconds since the epoch.
    pub timestamp: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// Features of a runtime handler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandlerFeatures {
    /// Empty for the default handler.
    pub name: String,
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerUsage {
    pub container_id: String,
    /// Nanoseconds since the epoch.
    pub timestamp: i64,
    pub cpu_core_nanoseconds: u64,
    pub working_set_bytes: u64,
    pub writable_layer_bytes: u64,
}

/// A request to pull an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequest {
    pub image: ImageSpec,
    pub login: Option<RegistryLogin>,
    pub sandbox: Option<SandboxConfig>,
    /// None: the adapter's own timeout.
    pub limit: Option<Duration>,
}
