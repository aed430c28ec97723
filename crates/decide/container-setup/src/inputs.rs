//! The node's data that setup needs, as plain values.
//!
//! Rule: three groups by lifetime: the node ([`NodeSetupInputs`]), a pod ([`PodSetupInputs`]), one start of one
//! container ([`ContainerSetupInputs`]). Nothing here is looked up.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pod_model::pod::ResourceList;
use ports::runtime_objects::{
    Device, HandlerFeatures, ImageRecord, ImageSpec, Mount, UserNamespace,
};

use crate::contents::Contents;
use crate::resolv_conf::ResolvConf;

/// Facts of the node; they change only with its configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSetupInputs {
    /// The node's own addresses; the first one's family comes first in a pod's addresses too.
    pub node_ips: Vec<IpAddr>,
    /// The directory of the pods' log directories (`podLogsDir`).
    pub pod_logs_directory: String,
    pub dns: NodeDns,
    pub security: NodeSecurity,
    pub machine: MachineProperties,
    pub limits: NodeLimits,
    /// The allocatable resources in the node's status; empty where there is no such status.
    pub allocatable: ResourceList,
    pub gates: SetupGates,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeDns {
    /// `clusterDNS`.
    pub cluster_servers: Vec<IpAddr>,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// The current content of the file of `resolvConf`; none where that setting is empty.
    pub resolver: Option<ResolvConf>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeSecurity {
    /// The directory of `Localhost` seccomp profiles.
    pub seccomp_root: String,
    /// `seccompDefault`.
    pub seccomp_default: bool,
    pub selinux_enabled: bool,
    /// Of `/sys/devices/system/cpu/cpu<n>/thermal_throttle`, those that are there.
    pub thermal_throttle_paths: Vec<String>,
}

/// What the machine is and has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MachineProperties {
    pub cgroup_v2: bool,
    pub memory_bytes: i64,
    pub swap_bytes: i64,
    /// Whether the kernel can limit swap of a cgroup.
    pub swap_controller: bool,
    pub page_bytes: i64,
    /// As the kernel's cgroup files name them: `2MB`, `1GB`; empty without that controller.
    pub huge_page_sizes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeLimits {
    /// `cpuCFSQuota`.
    pub cpu_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_period: i64,
    /// `podPidsLimit`; -1 for none.
    pub pod_pids: i64,
    /// `singleProcessOOMKill`: whether only the process is killed, not its whole container.
    pub single_process_oom_kill: bool,
    pub swap: SwapBehavior,
    /// `memoryThrottlingFactor`.
    pub memory_throttling_factor: f64,
    /// `memoryReservationPolicy: TieredReservation`.
    pub tiered_memory_reservation: bool,
}

impl Default for NodeLimits {
    /// The defaults of the configuration.
    fn default() -> Self {
        Self {
            cpu_quota: true,
            cpu_period: crate::cpu::DEFAULT_PERIOD,
            pod_pids: -1,
            single_process_oom_kill: true,
            swap: SwapBehavior::NoSwap,
            memory_throttling_factor: 0.9,
            tiered_memory_reservation: false,
        }
    }
}

/// `memorySwap.swapBehavior`; `NoSwap` when unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SwapBehavior {
    #[default]
    NoSwap,
    LimitedSwap,
}

/// The feature gates that affect a container's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetupGates {
    pub pod_level_resources: bool,
    pub memory_qos: bool,
    pub hostname_override: bool,
    pub container_stop_signals: bool,
    pub image_volume: bool,
    pub env_files: bool,
    pub custom_cpu_period: bool,
}

impl Default for SetupGates {
    /// The defaults of Kubernetes 1.36.
    fn default() -> Self {
        Self {
            pod_level_resources: true,
            memory_qos: false,
            hostname_override: true,
            container_stop_signals: false,
            image_volume: true,
            env_files: true,
            custom_cpu_period: true,
        }
    }
}

impl Default for NodeSetupInputs {
    fn default() -> Self {
        Self {
            node_ips: Vec::new(),
            pod_logs_directory: "/var/log/pods".to_owned(),
            dns: NodeDns::default(),
            security: NodeSecurity::default(),
            machine: MachineProperties::default(),
            limits: NodeLimits::default(),
            allocatable: ResourceList::default(),
            gates: SetupGates::default(),
        }
    }
}

/// Facts of a pod; they are fixed for its lifetime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodSetupInputs {
    /// The handler of its runtime class, and its features.
    pub handler: HandlerFeatures,
    /// In the runtime's form.
    pub cgroup_parent: String,
    /// The user namespace range of the pod where it asked for one.
    pub user_namespace: Option<UserNamespace>,
    /// Supplemental groups that its volumes add.
    pub volume_groups: Vec<i64>,
    /// Whether some container of the pod has exclusive CPUs.
    pub exclusive_cpus: bool,
}

/// A mounted volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadyVolume {
    /// Where it is on this machine; empty for an image.
    pub path: String,
    /// The volume itself may not be written.
    pub read_only: bool,
    /// Whether the runtime relabels it for SELinux.
    pub selinux_relabel: bool,
    /// For a volume that is an image.
    pub image: Option<ImageSpec>,
    /// For a block volume: the device's path under the pod's directory.
    pub device: Option<String>,
}

/// Devices and mounts that device plugins and claims give a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocatedDevices {
    pub devices: Vec<Device>,
    pub cdi_devices: Vec<String>,
    pub mounts: Vec<Mount>,
    pub env: Vec<(String, String)>,
    pub annotations: BTreeMap<String, String>,
}

/// Facts of one start of a container.
#[derive(Debug, Clone, Default)]
pub struct ContainerSetupInputs {
    /// The image ref in the runtime.
    pub image_ref: String,
    /// The image as the runtime reports it.
    pub image: ImageRecord,
    pub restart_count: u32,
    /// Addresses of the sandbox, the main one first. On the host network the node's own where there
    /// is an API server; without one none, as in the reference.
    pub pod_ips: Vec<String>,
    /// For an ephemeral container with a target: the id of the container to join.
    pub target_id: Option<String>,
    /// By name of the volume.
    pub volumes: BTreeMap<String, ReadyVolume>,
    /// Pinned sub-paths of the container's mounts, by mount index.
    pub sub_paths: BTreeMap<usize, String>,
    /// The termination message file on the host; none where there is none.
    pub termination_file: Option<String>,
    /// The pod's hosts file on the host; none where none was created.
    pub hosts_file: Option<String>,
    pub contents: Contents,
    /// Contents of the existing environment files, by volume and path.
    pub env_files: BTreeMap<(String, String), Vec<u8>>,
    /// Variables of services; empty without an API server.
    pub service_environment: BTreeMap<String, String>,
    pub given: AllocatedDevices,
    /// Whether this container has exclusive CPUs.
    pub exclusive_cpus: bool,
}

/// A warning found while a pod is set up, to be emitted as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupWarning {
    /// Whether the event is about the node instead of the pod.
    pub about_node: bool,
    /// The event's reason; the type is always `Warning`.
    pub reason: &'static str,
    pub message: String,
}
