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
    pub addresses: Arc<dyn HostAddresses>,
    pub logs: Arc<dyn LogFiles>,
    pub credential_programs: Arc<dyn CredentialPrograms>,
    pub pull_records: Arc<dyn PullRecords>,
    pub contents: Arc<dyn PodContents>,
    pub rounds: Arc<dyn Rounds>,
}

/// What the configuration says about pods.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub reading: Reading,
    /// For the planner. The runtime's name and what it can do are asked of the runtime.
    pub lifecycle: Settings,
    /// For the setup of containers. What `resolv.conf` says, and which addresses the machine has, is
    /// asked when it is needed.
    pub setup: NodeFacts,
    /// The file of `resolvConf`; empty for none.
    pub resolv_conf: String,
    pub room: NodeRoom,
    /// What the runtime can do is asked of the runtime.
    pub abilities: NodeAbilities,
    /// Users for pods that want their own, or why there are none.
    pub user_ranges: Result<UserRanges, String>,
    pub cgroups: CgroupSettings,
    pub pulls: PullLimits,
    /// Programs that know logins of registries, in the order in which they are asked.
    pub credential_providers: Vec<CredentialProvider>,
    /// Whose pod may use an image that is here; None where nobody looks.
    pub image_verification: Option<Verification>,
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

impl CgroupSettings {
    /// A pod's cgroup in the runtime's words; nothing where pods have none of their own.
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
    pub(crate) own_users: OwnUsers,
    pub(crate) board: Board,
    pub(crate) saved: SavedMemories,
    pub(crate) node: watch::Receiver<NodeState>,
    pub(crate) turns: Turns,
    /// Whether pods that end are killed instead of waiting for their grace periods.
    pub(crate) kill_now: watch::Receiver<bool>,
}

impl PodContext {
    /// The machine's addresses now, as texts.
    pub(crate) fn host_ips(&self) -> Vec<String> {
        self.ports.addresses.now().iter().map(ToString::to_string).collect()
    }
}
