//! What only the node knows and a setup needs, as plain values.
//!
//! Rule: three groups by how long they hold: for the node ([`NodeFacts`]), for a pod
//! ([`PodFacts`]), for one start of one container ([`ContainerFacts`]). Nothing here is looked up.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pod_model::pod::ResourceList;
use ports::runtime_objects::{
    Device, HandlerFeatures, ImageRecord, ImageSpec, Mount, UserNamespace,
};

use crate::contents::Contents;
use crate::resolv_conf::ResolvConf;

/// What holds for the node as long as its configuration does.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// The node's own addresses; the first one's family comes first in a pod's addresses too.
    pub node_ips: Vec<IpAddr>,
    /// Where the pods' log folders are (`podLogsDir`).
    pub pod_logs_directory: String,
    pub dns: NodeDns,
    pub security: NodeSecurity,
    pub machine: Machine,
    pub limits: NodeLimits,
    /// What pods may use of this node, as its status says; empty where there is no such status.
    pub allocatable: ResourceList,
    pub gates: Gates,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeDns {
    /// `clusterDNS`.
    pub cluster_servers: Vec<IpAddr>,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// What the file of `resolvConf` says now; none where that setting is empty.
    pub resolver: Option<ResolvConf>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeSecurity {
    /// The folder beneath which `Localhost` seccomp profiles lie.
    pub seccomp_root: String,
    /// `seccompDefault`.
    pub seccomp_default: bool,
    pub selinux_enabled: bool,
    /// Of `/sys/devices/system/cpu/cpu<n>/thermal_throttle`, those that are there.
    pub thermal_throttle_paths: Vec<String>,
}

/// What the machine is and has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machine {
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
    /// As a configuration without a word about them has it.
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

/// `memorySwap.swapBehavior`; nothing said is `NoSwap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SwapBehavior {
    #[default]
    NoSwap,
    LimitedSwap,
}

/// The feature gates that change what a container is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    pub pod_level_resources: bool,
    pub memory_qos: bool,
    pub hostname_override: bool,
    pub container_stop_signals: bool,
    pub image_volume: bool,
    pub env_files: bool,
    pub custom_cpu_period: bool,
}

impl Default for Gates {
    /// As they are in Kubernetes 1.36 where nobody said anything.
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

impl Default for NodeFacts {
    fn default() -> Self {
        Self {
            node_ips: Vec::new(),
            pod_logs_directory: "/var/log/pods".to_owned(),
            dns: NodeDns::default(),
            security: NodeSecurity::default(),
            machine: Machine::default(),
            limits: NodeLimits::default(),
            allocatable: ResourceList::default(),
            gates: Gates::default(),
        }
    }
}

/// What holds for a pod as long as it is here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodFacts {
    /// The handler of its runtime class and what it can do.
    pub handler: HandlerFeatures,
    /// As the runtime wants to be told it.
    pub cgroup_parent: String,
    /// The users that the pod was given where it asked for its own.
    pub user_namespace: Option<UserNamespace>,
    /// Groups that its volumes bring along.
    pub volume_groups: Vec<i64>,
    /// Whether some container of the pod has whole CPUs of its own.
    pub exclusive_cpus: bool,
}

/// A volume that is ready.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadyVolume {
    /// Where it is on this machine; empty for an image.
    pub path: String,
    /// The volume itself may not be written.
    pub read_only: bool,
    /// The runtime is to label it for SELinux.
    pub selinux_relabel: bool,
    /// For a volume that is an image.
    pub image: Option<ImageSpec>,
    /// For a block volume: the device's path under the pod's folder.
    pub device: Option<String>,
}

/// What device plugins and claims give a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenDevices {
    pub devices: Vec<Device>,
    pub cdi_devices: Vec<String>,
    pub mounts: Vec<Mount>,
    pub env: Vec<(String, String)>,
    pub annotations: BTreeMap<String, String>,
}

/// What holds for one start of a container.
#[derive(Debug, Clone, Default)]
pub struct ContainerFacts {
    /// What the runtime calls the image.
    pub image_ref: String,
    /// The image as the runtime reports it.
    pub image: ImageRecord,
    pub restart_count: u32,
    /// Addresses of the sandbox, first the main one. On the host network the node's own where
    /// there is an API server; without one the reference has none, and so should we.
    pub pod_ips: Vec<String>,
    /// For an ephemeral container with a target: the id of the container to join.
    pub target_id: Option<String>,
    /// By name of the volume.
    pub volumes: BTreeMap<String, ReadyVolume>,
    /// What was pinned for the container's mounts, by their place in its list.
    pub sub_paths: BTreeMap<usize, String>,
    /// The file on this machine that takes the termination message; none where there is none.
    pub termination_file: Option<String>,
    /// The pod's hosts file on this machine; none where none was made.
    pub hosts_file: Option<String>,
    pub contents: Contents,
    /// Content of the files of variables that are there, by volume and path.
    pub env_files: BTreeMap<(String, String), Vec<u8>>,
    /// Variables of services; empty without an API server.
    pub service_environment: BTreeMap<String, String>,
    pub given: GivenDevices,
    /// Whether this container has whole CPUs of its own.
    pub exclusive_cpus: bool,
}

/// Something that should be told about while a pod is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupWarning {
    /// Of the pod, or of the node.
    pub about_node: bool,
    /// The event's reason; the type is always `Warning`.
    pub reason: &'static str,
    pub message: String,
}
