//! What every worker needs: ports, services, settings, the node's state.

use super::SavedMemories;
use crate::admission::Admissions;
use crate::board::Board;
use crate::clock::Clock;
use crate::images::{Images, PullLimits};
use crate::log_rotation::LogRotation;
use crate::observed::Observed;
use crate::own_users::OwnUsers;
use crate::probes::Probes;
use crate::turns::Turns;
use container_setup::cgroups;
use container_setup::inputs::NodeFacts;
use node_policy::admission::{NodeAbilities, NodeRoom};
use node_policy::credential_providers::CredentialProvider;
use node_policy::garbage::DeadLimits;
use node_policy::image_access::Verification;
use node_policy::user_ranges::UserRanges;
use pod_desired::Reading;
use pod_lifecycle::Settings;
use pod_model::pod::Pod;
use ports::pod_host::{CgroupLimits, PodCgroups, PodFolders, Records, VolumeDriver};
use ports::probing::NetworkProber;
use ports::runtime_objects::HandlerFeatures;
use ports::{
    CredentialPrograms, HostAddresses, HostTexts, LogFiles, PodContents, PodRuntime, PullRecords,
    Rounds,
};
use std::sync::Arc;
use tokio::sync::watch;

/// The ports that pods need.
#[derive(Clone)]
pub struct PodPorts {
    pub runtime: Arc<dyn PodRuntime>,
    pub folders: Arc<dyn PodFolders>,
    pub cgroups: Arc<dyn PodCgroups>,
    pub volumes: Arc<dyn VolumeDriver>,
    pub records: Arc<dyn Records>,
    pub prober: Arc<dyn NetworkProber>,
    pub texts: Arc<dyn HostTexts>,
    pub addresses: Arc<dyn HostAddresses>,
    pub logs: Arc<dyn LogFiles>,
    pub credential_programs: Arc<dyn CredentialPrograms>,
    pub pull_records: Arc<dyn PullRecords>,
    pub contents: Arc<dyn PodContents>,
    pub rounds: Arc<dyn Rounds>,
}

/// The configuration for pods.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub reading: Reading,
    /// For the planner. The runtime's name and features are read from the runtime.
    pub lifecycle: Settings,
    /// For the setup of containers. `resolv.conf` and the machine's addresses are read when they
    /// are needed.
    pub setup: NodeFacts,
    /// The file of `resolvConf`; empty for none.
    pub resolv_conf: String,
    pub room: NodeRoom,
    /// The runtime's abilities are read from the runtime.
    pub abilities: NodeAbilities,
    /// Ranges for pods with a user namespace, or why there are none.
    pub user_ranges: Result<UserRanges, String>,
    pub cgroups: CgroupSettings,
    pub pulls: PullLimits,
    /// Credential provider plugins, in the order in which they are run.
    pub credential_providers: Vec<CredentialProvider>,
    /// Which pods may use a present image; None if that is not checked.
    pub image_verification: Option<Verification>,
    /// The kubelet's root directory, which may hold registry logins.
    pub root: String,
    pub dead: DeadLimits,
    /// None if logs are not rotated.
    pub logs: Option<LogRotation>,
}

/// The layout of pods' cgroups.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupSettings {
    /// `cgroupsPerQOS`; without it pods have no cgroups of their own.
    pub per_qos: bool,
    /// `cgroupRoot` as a list of names, before `kubepods`.
    pub root: Vec<String>,
    /// The limits at `kubepods`; None if the allocatable is not enforced.
    pub enforced: Option<CgroupLimits>,
    /// Cgroups of other services whose limits the configuration sets.
    pub reserved: Vec<ReservedCgroup>,
}

impl CgroupSettings {
    /// A pod's cgroup parent in the runtime's notation; empty if pods have no cgroups of their own.
    pub(crate) async fn parent_of(
        &self,
        pod: &Pod,
        port: &dyn PodCgroups,
    ) -> Result<String, String> {
        if !self.per_qos {
            return Ok(String::new());
        }
        let name = port.runtime_name(&cgroups::of_pod(&self.root, pod)).await;
        name.map_err(|error| error.to_string())
    }
}

/// A cgroup with resources reserved for the system or the node's own services.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservedCgroup {
    /// The value in `enforceNodeAllocatable`.
    pub level: String,
    /// As the configuration names it.
    pub path: String,
    pub limits: CgroupLimits,
}

/// The current state of node and runtime.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeState {
    pub(crate) network_ready: Result<(), String>,
    pub(crate) runtime_ready: Result<(), String>,
    /// Whether the runtime supports strict supplemental groups; None until it has answered.
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
    pub(crate) own_users: OwnUsers,
    pub(crate) board: Board,
    pub(crate) saved: SavedMemories,
    pub(crate) node: watch::Receiver<NodeState>,
    pub(crate) turns: Turns,
    /// Whether pods that end are killed instead of waiting for their grace periods.
    pub(crate) kill_now: watch::Receiver<bool>,
}

impl PodContext {
    /// The machine's current addresses.
    pub(crate) fn host_ips(&self) -> Vec<String> {
        self.ports.addresses.now().iter().map(ToString::to_string).collect()
    }
}
