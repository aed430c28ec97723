//! What every worker needs: ports, services, settings, the node's state.

use super::PodMemoryStore;
use crate::admission::Admissions;
use crate::call_limiter::CallLimiter;
use crate::clock::AgentClock;
use crate::cluster_pods::{ApiPodStore, ClusterObjectCaches, StatusReports};
use crate::contents::{ContentChangeStrategy, PodContentStore};
use crate::images::{ImagePuller, PullLimits};
use crate::log_rotation::LogRotation;
use crate::observed::ObservedPods;
use crate::plugins::DeviceService;
use crate::probes::Probes;
use crate::status_store::StatusStore;
use crate::user_namespaces::UserNamespaceAllocator;
use container_setup::cgroups;
use container_setup::inputs::NodeSetupInputs;
use node_policy::admission::{NodeCapacity, NodeSupport};
use node_policy::credential_providers::CredentialPlugin;
use node_policy::garbage::DeadContainerLimits;
use node_policy::image_access::Verification;
use node_policy::user_namespace_ranges::UserNamespaceRangeAllocator;
use node_status::NodeObject;
use node_status::addresses::host_ips;
use pod_desired::ManifestOptions;
use pod_lifecycle::PodLifecycleSettings;
use pod_model::pod::Pod;
use ports::pod_host::{AgentRecords, CgroupLimits, PodCgroups, PodDirs, VolumeDriver};
use ports::probing::NetworkProber;
use ports::runtime_objects::HandlerFeatures;
use ports::{
    CredentialPrograms, HostAddresses, HostTextFiles, LogFiles, PeriodicTasks, PodContents,
    PodRuntime, PullRecords,
};
use std::sync::Arc;
use tokio::sync::watch;

/// The ports that pods need.
#[derive(Clone)]
pub struct PodPorts {
    pub runtime: Arc<dyn PodRuntime>,
    pub dirs: Arc<dyn PodDirs>,
    pub cgroups: Arc<dyn PodCgroups>,
    pub volumes: Arc<dyn VolumeDriver>,
    pub records: Arc<dyn AgentRecords>,
    pub prober: Arc<dyn NetworkProber>,
    pub texts: Arc<dyn HostTextFiles>,
    pub addresses: Arc<dyn HostAddresses>,
    pub logs: Arc<dyn LogFiles>,
    pub credential_programs: Arc<dyn CredentialPrograms>,
    pub pull_records: Arc<dyn PullRecords>,
    pub contents: Arc<dyn PodContents>,
    pub periodic_tasks: Arc<dyn PeriodicTasks>,
}

/// The configuration for pods.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub reading: ManifestOptions,
    /// For the planner. The runtime's name and features are read from the runtime.
    pub lifecycle: PodLifecycleSettings,
    /// For the setup of containers. `resolv.conf` and the machine's addresses are read when they
    /// are needed.
    pub setup: NodeSetupInputs,
    /// The file of `resolvConf`; empty for none.
    pub resolv_conf: String,
    pub room: NodeCapacity,
    /// The runtime's abilities are read from the runtime.
    pub abilities: NodeSupport,
    /// Ranges for pods with a user namespace, or why there are none.
    pub user_namespace_ranges: Result<UserNamespaceRangeAllocator, String>,
    pub cgroups: CgroupSettings,
    /// How changes of ConfigMaps and Secrets are noticed.
    pub content_changes: ContentChangeStrategy,
    pub pulls: PullLimits,
    /// Credential provider plugins, in the order in which they are run.
    pub credential_providers: Vec<CredentialPlugin>,
    /// Which pods may use a present image; None if that is not checked.
    pub image_verification: Option<Verification>,
    /// The kubelet's root directory, which may hold registry logins.
    pub root: String,
    pub dead: DeadContainerLimits,
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
    pub(crate) strict_supplemental_groups: Option<bool>,
    pub(crate) lifecycle: Arc<PodLifecycleSettings>,
    pub(crate) handlers: Arc<Vec<HandlerFeatures>>,
}

pub(crate) struct PodContext {
    pub(crate) ports: PodPorts,
    pub(crate) settings: Arc<PodSettings>,
    pub(crate) clock: AgentClock,
    pub(crate) observed: ObservedPods,
    pub(crate) images: ImagePuller,
    pub(crate) contents: PodContentStore,
    pub(crate) probes: Probes,
    pub(crate) admissions: Admissions,
    pub(crate) user_namespaces: UserNamespaceAllocator,
    pub(crate) status_store: StatusStore,
    pub(crate) api_pods: ApiPodStore,
    /// None for a standalone node.
    pub(crate) reports: Option<StatusReports>,
    /// None for a standalone node.
    pub(crate) objects: Option<ClusterObjectCaches>,
    /// The Node as the API server has it; None for a standalone node, and before there is one.
    pub(crate) node_object: watch::Receiver<Option<Arc<NodeObject>>>,
    pub(crate) saved: PodMemoryStore,
    pub(crate) node: watch::Receiver<NodeState>,
    pub(crate) call_limiter: CallLimiter,
    /// None for an agent that takes no plugins.
    pub(crate) devices: Option<Arc<DeviceService>>,
    /// Whether pods that end are killed instead of waiting for their grace periods.
    pub(crate) kill_now: watch::Receiver<bool>,
}

impl PodContext {
    /// The handler of the pod's runtime class; empty for the runtime's default.
    pub(crate) fn handler_name(&self, pod: &Pod) -> Result<String, String> {
        let class = pod.spec.runtime_class_name.as_deref().unwrap_or_default();
        if class.is_empty() {
            return Ok(String::new());
        }
        let classes = self.objects.as_ref().map(|objects| objects.runtime_classes.snapshot());
        let found = classes.as_ref().and_then(|classes| classes.get("", class));
        let found = found.map(|class| class.handler.clone());
        // upstream: pkg/kubelet/runtimeclass/runtimeclass_manager.go
        found.ok_or_else(|| {
            format!(
                "failed to lookup RuntimeClass {class}: runtimeclass.node.k8s.io {class:?} not found"
            )
        })
    }

    /// The node's addresses: those of its Node object, else the machine's current ones.
    pub(crate) fn host_ips(&self) -> Vec<String> {
        let of_node = self.node_object.borrow().as_ref().map(|node| host_ips(node));
        of_node
            .filter(|ips| !ips.is_empty())
            .unwrap_or_else(|| self.ports.addresses.now().iter().map(ToString::to_string).collect())
    }
}
