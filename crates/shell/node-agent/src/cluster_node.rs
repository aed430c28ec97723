//! This machine as a node of a cluster: registration, status, Lease, pod CIDR, events.
//!
//! Rule: nothing here waits for another part of the agent, and no part of the agent waits for it: a
//! node whose API server is away runs its pods as before. Each task has its own requests, so a
//! status update that hangs delays no Lease renewal.

mod event_recorder;
mod facts;
mod lease_renewal;
mod pod_cidr;
mod registration;
mod status;

pub use event_recorder::ClusterEventQueue;

use crate::admission::Admissions;
use crate::certificates::CertificateDependencies;
use crate::clock::AgentClock;
use crate::observed::ObservedPods;
use crate::plugins::NodePlugins;
use crate::pods::{NodeState, PodPorts};
use crate::runtime_watch::RuntimeView;
use crate::status_store::StatusStore;
use crate::task_tree::TaskTree;
use facts::{FactSources, FactsReader};
use node_status::object::NodeSettings;
use node_status::{NodeObject, NodeStatusEvent, ResourceMap};
use pod_lifecycle::EventType;
use ports::cluster_api::ApiFuture;
use ports::{ClusterApi, ClusterApiError, MachineInfo};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The dependencies of a node of a cluster.
pub struct ClusterDependencies {
    /// Limited to `kubeAPIQPS`.
    pub api: Arc<dyn ClusterApi>,
    /// For the status and the Lease: without a rate limit, over its own connections.
    pub heartbeats: Arc<dyn ClusterApi>,
    pub machine: Arc<dyn MachineInfo>,
    pub settings: ClusterSettings,
    /// The agent's events; they are sent from here.
    pub events: Arc<ClusterEventQueue>,
    /// Limited to `eventRecordQPS`.
    pub event_api: Arc<dyn ClusterApi>,
    pub certificates: CertificateDependencies,
}

/// The configuration of the Node object.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub node: NodeSettings,
    /// `--register-node`.
    pub registers: bool,
    /// `--node-ip`.
    pub node_ips: Vec<IpAddr>,
    /// What is reserved and not allocatable to pods, by resource.
    pub reservation: ResourceMap,
    pub declared_features: Vec<String>,
    pub update_frequency: Duration,
    pub report_frequency: Duration,
    pub lease_duration: Duration,
    /// Whether devices in the status are those of an earlier machine: this one has no checkpoint of
    /// them.
    pub resets_devices: bool,
}

/// Shared by the tasks.
struct ClusterNode {
    dependencies: ClusterDependencies,
    clock: AgentClock,
    status_store: StatusStore,
    ports: PodPorts,
    facts: FactsReader,
    /// The Node as the API server has it; None while there is none.
    node_object: watch::Sender<Option<Arc<NodeObject>>>,
    /// Whether the API server has said if there is a Node.
    is_listed: watch::Sender<bool>,
    /// What admission knows of the node comes from its object.
    admissions: Admissions,
}

impl ClusterNode {
    fn name(&self) -> &str {
        &self.dependencies.settings.node.node_name
    }

    /// A number below 1 000 that differs between nodes and between calls.
    fn random(&self) -> u16 {
        let nanos = self.clock.now().nanos().unsigned_abs();
        u16::try_from(nanos / 1_000 % 1_000).unwrap_or(0)
    }

    /// Waits until the API server's Node object is known.
    async fn wait_until_known(&self) {
        let mut node_object = self.node_object.subscribe();
        // Cannot fail: the sender lives as long as `self`.
        let _ = node_object.wait_for(Option::is_some).await;
    }

    fn record(&self, events: &[NodeStatusEvent]) {
        for event in events {
            let kind = if event.warning { EventType::Warning } else { EventType::Normal };
            self.status_store.emit_node_event(kind, event.reason, &event.message, self.clock.now());
        }
    }
}

/// Timeout of a request, whatever implements the port.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for the Lease and the status, which are retried sooner.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// The response, or an error if there is none in time.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    request: ApiFuture<'_, T>,
) -> Result<T, ClusterApiError> {
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| {
        let cause = format!("no answer within {limit:?}");
        Err(ClusterApiError::NoResponse { request: "request of the node".to_owned(), cause })
    })
}

/// What the node takes from the rest of the agent.
pub(crate) struct ClusterNodeInputs {
    pub(crate) clock: AgentClock,
    pub(crate) status_store: StatusStore,
    pub(crate) ports: PodPorts,
    pub(crate) runtime_view: watch::Receiver<RuntimeView>,
    pub(crate) node_state: watch::Receiver<NodeState>,
    pub(crate) observed: ObservedPods,
    pub(crate) admissions: Admissions,
    pub(crate) node_object: watch::Sender<Option<Arc<NodeObject>>>,
    pub(crate) plugins: Option<NodePlugins>,
}

/// The Node as the API server has it.
#[derive(Clone)]
pub(crate) struct NodeFeed {
    /// None while there is none.
    pub(crate) node_object: watch::Receiver<Option<Arc<NodeObject>>>,
    /// Whether the API server has said if there is one.
    pub(crate) is_listed: watch::Receiver<bool>,
}

/// Starts the tasks of a node of a cluster.
pub(crate) fn start(
    tree: &mut TaskTree,
    dependencies: ClusterDependencies,
    inputs: ClusterNodeInputs,
) -> NodeFeed {
    let ClusterNodeInputs {
        clock,
        status_store,
        ports,
        runtime_view,
        node_state,
        observed,
        admissions,
        node_object,
        plugins,
    } = inputs;
    let machine = dependencies.machine.clone();
    let facts = FactsReader::new(FactSources {
        machine,
        ports: ports.clone(),
        view: runtime_view,
        state: node_state,
        observed,
        plugins,
    });
    let object_receiver = node_object.subscribe();
    let (is_listed, listed_receiver) = watch::channel(false);
    let node = Arc::new(ClusterNode {
        dependencies,
        clock,
        status_store,
        ports,
        facts,
        node_object,
        is_listed,
        admissions,
    });
    node.record(&[NodeStatusEvent {
        warning: false,
        reason: "Starting",
        message: "Starting kubelet.".to_owned(),
    }]);
    let status = node.clone();
    tree.start("node-status", move || status::keep_status_current(status.clone()));
    let lease = node.clone();
    tree.start("node-lease", move || lease_renewal::renew(lease.clone()));
    let range = node.clone();
    tree.start("pod-range", move || pod_cidr::sync_pod_cidr(range.clone()));
    tree.start("cluster-events", move || {
        event_recorder::send(
            node.dependencies.events.clone(),
            node.dependencies.event_api.clone(),
            node.clock.clone(),
        )
    });
    NodeFeed { node_object: object_receiver, is_listed: listed_receiver }
}
