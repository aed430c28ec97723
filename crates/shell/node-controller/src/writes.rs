//! Requests and their outcomes: each request is one task that ends with a value.
//!
//! Rule: a request carries every choice that was made for it; it reads the cluster only to find
//! that the choice no longer applies, and then reports so instead of choosing again.

use std::sync::Arc;

use node_health::health::ConditionWrite;
use node_health::lifecycle::WriteKind;
use node_health::no_execute::{NodeNoExecuteTaints, Toleration};
use node_health::pod_cleanup::CleanupReason;
use node_health::{ControllerTime, NodeId, PodId, RemoteTime, Taint};
use ports::ApiTime;
use ports::cluster_objects::Node;

use crate::api_gate::{ApiGate, RequestError};
use crate::uid::Uid;

pub(crate) mod cloud;
pub(crate) mod node;
pub(crate) mod pods;
pub(crate) mod probe;

/// A node, as far as a write needs it.
#[derive(Clone, Debug)]
pub(crate) struct NodeTarget {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) version: String,
}

/// A pod, as far as a write needs it.
#[derive(Clone, Debug)]
pub(crate) struct PodTarget {
    pub(crate) pod: PodId,
    pub(crate) uid: Uid,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Box<str>,
    pub(crate) version: u64,
}

impl PodTarget {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A pod to evict, and what shows whether it still has to be.
#[derive(Clone, Debug)]
pub(crate) struct PodToEvict {
    pub(crate) pod: PodTarget,
    /// Its deadline.
    pub(crate) due: ControllerTime,
    pub(crate) tolerations: Arc<[Toleration]>,
    pub(crate) bound: Option<ControllerTime>,
}

/// A request to the API server or the cloud, done as one task. Most write; `LookUpNodes`, `Probe` and
/// `QueryCloud` only read. Its outcome is a `WriteResult`.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// With `confirm`, the node's lease is read first: no node is marked Unknown whose lease turns
    /// out to be renewed. It carries the lease as known.
    Conditions {
        target: NodeTarget,
        writes: Vec<ConditionWrite>,
        confirm: Option<Confirm>,
    },
    Taints {
        target: NodeTarget,
        wanted: Vec<Taint>,
        known: Vec<Taint>,
        /// `timeAdded` of new taints.
        wall: ApiTime,
        is_eviction: bool,
    },
    Labels {
        target: NodeTarget,
        labels: Vec<(Box<str>, Box<str>)>,
    },
    Range {
        target: NodeTarget,
        ranges: Vec<String>,
    },
    /// Makes a new version of the node, with this value, which no other such write has.
    Touch {
        target: NodeTarget,
        value: String,
    },
    /// `whole`: all pods of the node, because it became not ready.
    MarkPods {
        target: NodeTarget,
        pods: Vec<PodTarget>,
        whole: bool,
    },
    Evict {
        target: NodeTarget,
        pods: Vec<PodToEvict>,
        /// The taints that it was decided on.
        known: NodeNoExecuteTaints,
    },
    Clear {
        pod: PodTarget,
        clearing: pods::PodClearing,
    },
    LookUpNodes {
        names: Vec<Box<str>>,
    },
    Probe {
        nodes: Vec<NodeTarget>,
    },
    /// Queries the cloud about a node; the answer comes back as an outcome.
    QueryCloud {
        target: NodeTarget,
        task: cloud::CloudTask,
    },
    /// Writes what follows from the cloud's answer.
    ApplyCloudAnswer {
        target: NodeTarget,
        answer: Box<cloud::CloudAnswer>,
    },
}

/// The known lease, to compare a live read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) renewed: Option<RemoteTime>,
}

/// What became of a pod to evict.
#[derive(Clone, Debug)]
pub(crate) enum EvictionResult {
    /// It is deleted, or terminating, or another pod by now.
    Gone,
    /// Its node's taints no longer evict it.
    Stays,
    Failed(RequestError),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum WriteResult {
    Node {
        target: NodeTarget,
        kind: WriteKind,
        /// The new version.
        outcome: Result<u64, RequestError>,
        /// The node as read again, if it was.
        fresh: Option<Box<Node>>,
        /// This write added the NoExecute taint.
        was_eviction: bool,
    },
    /// The lease was renewed, so nothing was written.
    Alive {
        target: NodeTarget,
        renewed: RemoteTime,
    },
    Range {
        target: NodeTarget,
        outcome: Result<(), RequestError>,
        fresh: Option<Box<Node>>,
    },
    Touched {
        target: NodeTarget,
        /// Whether the node has a version made by this leader.
        outcome: Result<bool, RequestError>,
        /// The node as read again since.
        fresh: Option<Box<Node>>,
    },
    Marked {
        target: NodeTarget,
        failures: Vec<(PodTarget, RequestError)>,
        whole: bool,
    },
    Evicted {
        target: NodeTarget,
        results: Vec<(PodTarget, EvictionResult)>,
        /// The node as read (inner `None`: there is none), if some of the pods stay.
        fresh: Option<Option<Box<Node>>>,
    },
    Cleared {
        pod: PodTarget,
        why: CleanupReason,
        /// Whether the reason still applied.
        outcome: Result<bool, RequestError>,
    },
    NodesLookedUp {
        answers: Vec<(Box<str>, Result<bool, RequestError>)>,
    },
    Probed(probe::Probed),
    CloudAnswered {
        target: NodeTarget,
        task: cloud::CloudTask,
        outcome: Result<Option<Box<cloud::CloudAnswer>>, cloud::CloudWriteError>,
    },
    CloudApplied {
        target: NodeTarget,
        task: cloud::CloudTask,
        outcome: Result<cloud::CloudOutcome, cloud::CloudWriteError>,
    },
}

/// Executes a request.
pub(crate) async fn perform(api_gate: ApiGate, write: Write) -> WriteResult {
    match write {
        Write::Conditions { target, writes, confirm } => {
            node::conditions(&api_gate, target, &writes, confirm).await
        }
        Write::Taints { target, wanted, known, wall, is_eviction } => {
            let (wanted, known) = (wanted.as_slice(), known.as_slice());
            let change = node::TaintChange { wanted, known, added_at: wall, is_eviction };
            node::taints(&api_gate, target, change).await
        }
        Write::Labels { target, labels } => node::labels(&api_gate, target, &labels).await,
        Write::Range { target, ranges } => node::range(&api_gate, target, &ranges).await,
        Write::Touch { target, value } => node::touch(&api_gate, target, &value).await,
        Write::MarkPods { target, pods, whole } => pods::mark(&api_gate, target, pods, whole).await,
        Write::Evict { target, pods, known } => pods::evict(&api_gate, target, pods, &known).await,
        Write::Clear { pod, clearing } => {
            let outcome = pods::clear(&api_gate, &pod, &clearing).await;
            WriteResult::Cleared { pod, why: clearing.why, outcome }
        }
        Write::LookUpNodes { names } => node::look_for(&api_gate, names).await,
        Write::Probe { nodes } => WriteResult::Probed(probe::probe(&api_gate, nodes).await),
        Write::QueryCloud { target, task } => {
            let outcome = cloud::ask(&api_gate, &target, task).await;
            WriteResult::CloudAnswered {
                target,
                task,
                outcome: outcome.map(|answer| answer.map(Box::new)),
            }
        }
        Write::ApplyCloudAnswer { target, answer } => {
            let outcome = cloud::apply_answer(&api_gate, &target, &answer).await;
            WriteResult::CloudApplied { target, task: answer.task, outcome }
        }
    }
}
