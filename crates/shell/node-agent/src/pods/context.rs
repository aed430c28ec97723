//! What every worker needs: ports, services, settings, the node's state.

use super::SavedMemories;
use crate::admission::Admissions;
use crate::board::Board;
use crate::clock::Clock;
use crate::images::{Images, PullLimits};
use crate::log_rotation::LogRotation;
use crate::observed::Observed;
use crate::probes::Probes;
use container_setup::inputs::NodeFacts;
use node_policy::admission::{NodeAbilities, NodeRoom};
use node_policy::garbage::DeadLimits;
use pod_desired::Reading;
use pod_lifecycle::Settings;
use ports::pod_host::{CgroupLimits, PodCgroups, PodFolders, Records, VolumeDriver};
use ports::probing::NetworkProber;
use ports::runtime_objects::HandlerFeatures;
use ports::{HostTexts, LogFiles, PodRuntime};
use std::sync::Arc;
use tokio::sync::watch;

/// The seams to the world that pods need.
#[derive(Clone)]
pub struct PodPorts {
    pub runtime: Arc<dyn PodRuntime>,
    pub folders: Arc<dyn PodFolders>,
    pub cgroups: Arc<dyn PodCgroups>,
    pub volumes: Arc<dyn VolumeDriver>,
    pub records: Arc<dyn Records>,
    pub prober: Arc<dyn NetworkProber>,
    pub texts: Arc<dyn HostTexts>,
    pub logs: Arc<dyn LogFiles>,
}

/// What the configuration says about pods.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub reading: Reading,
    /// For the planner. The runtime's name and what it can do are asked of the runtime.
    pub lifecycle: Settings,
    /// For the setup of containers. What `resolv.conf` says is read when it is needed.
    pub setup: NodeFacts,
    /// The file of `resolvConf`; empty for none.
    pub resolv_conf: String,
    /// First the main address.
    pub host_ips: Vec<String>,
    pub room: NodeRoom,
    /// What the runtime can do is asked of the runtime.
    pub abilities: NodeAbilities,
    pub cgroups: CgroupSettings,
    pub pulls: PullLimits,
    /// The root directory, where logins of registries may lie.
    pub root: String,
    pub dead: DeadLimits,
    /// None where logs grow without end.
    pub logs: Option<LogRotation>,
}

/// How pods' cgroups are laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupSettings {
    /// `cgroupsPerQOS`; without it pods have no cgroups of their own.
    pub per_qos: bool,
    /// `cgroupRoot` as a list of names, before `kubepods`.
    pub root: Vec<String>,
    /// What is set at `kubepods`; None where nobody enforces the allocatable.
    pub enforced: Option<CgroupLimits>,
    /// Cgroups of others whose limits the configuration sets.
    pub reserved: Vec<ReservedCgroup>,
}

/// A cgroup in which something is reserved for the system or the node's own services.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservedCgroup {
    /// The word in `enforceNodeAllocatable`.
    pub level: String,
    /// As the configuration names it.
    pub path: String,
    pub limits: CgroupLimits,
}

/// What is known of node and runtime at the moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeState {
    pub(crate) network_ready: Result<(), String>,
    pub(crate) runtime_ready: Result<(), String>,
    /// Whether the runtime knows strict supplemental groups; None until it was heard of.
    pub(crate) strict_groups: Option<bool>,
    pub(crate) lifecycle: Arc<Settings>,
    pub(crate) handlers: Arc<Vec<HandlerFeatures>>,
}

pub(crate) struct PodContext {
    pub(crate) ports: PodPorts,
    pub(crate) settings: Arc<PodSettings>,
    pub(crate) clock: Clock,
    pub(crate) observed: Observed,
    pub(crate) images: Images,
    pub(crate) probes: Probes,
    pub(crate) admissions: Admissions,
    pub(crate) board: Board,
    pub(crate) saved: SavedMemories,
    pub(crate) node: watch::Receiver<NodeState>,
}
