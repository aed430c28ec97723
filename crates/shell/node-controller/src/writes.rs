//! Requests and their results: each request runs as one task, which returns its result.
//!
//! Rule: a request contains every decision that it depends on. It may read the cluster, but only to
//! find out that a decision no longer applies; it then reports this instead of deciding again.

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

/// The node that a request is for.
#[derive(Clone, Debug)]
pub(crate) struct NodeTarget {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) version: String,
}

/// The pod that a request is for.
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

/// A pod to evict, with what is needed to check once more that its node's taints require it.
#[derive(Clone, Debug)]
pub(crate) struct PodToEvict {
    pub(crate) pod: PodTarget,
    /// When its tolerations end.
    pub(crate) due: ControllerTime,
    pub(crate) tolerations: Arc<[Toleration]>,
    /// When it was bound to the node, if known.
    pub(crate) bound: Option<ControllerTime>,
}

/// A request to the API server or the cloud, run as one task. `LookUpNodes`, `Probe` and
/// `QueryCloud` only read; all others write. Its result is a [`WriteResult`].
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// Writes conditions of a node. With `confirm`, the node's lease is read first, and if it was
    /// renewed meanwhile, the node is not marked Unknown.
    Conditions {
        target: NodeTarget,
        writes: Vec<ConditionWrite>,
        confirm: Option<Confirm>,
    },
    Taints {
        target: NodeTarget,
        wanted: Vec<Taint>,
        /// The taints that the node is known to have.
        known: Vec<Taint>,
        /// The time to write as `timeAdded` of new taints.
        wall: ApiTime,
        is_eviction: bool,
    },
    Labels {
        target: NodeTarget,
        labels: Vec<(Box<str>, Box<str>)>,
    },
    /// Writes the node's pod CIDRs.
    Range {
        target: NodeTarget,
        ranges: Vec<String>,
    },
    /// Gives the node a new resource version, by an annotation whose `value` no other request
    /// writes: a request of an earlier leader that is still on its way then conflicts.
    Touch {
        target: NodeTarget,
        value: String,
    },
    /// Marks pods as not ready. `whole`: these are all pods of the node, because it became not
    /// ready.
    MarkPods {
        target: NodeTarget,
        pods: Vec<PodTarget>,
        whole: bool,
    },
    Evict {
        target: NodeTarget,
        pods: Vec<PodToEvict>,
        /// The taints because of which the eviction was decided.
        known: NodeNoExecuteTaints,
    },
    /// Deletes a pod in garbage collection. `fail_first`: sets its phase to Failed before that;
    /// `condition`: and adds the condition DisruptionTarget.
    Clear {
        pod: PodTarget,
        clearing: pods::PodClearing,
    },
    /// Checks whether nodes exist that pods name and that no list has shown.
    LookUpNodes {
        names: Vec<Box<str>>,
    },
    /// Reads the leases of some nodes directly, to check that the watch delivers everything.
    Probe {
        nodes: Vec<NodeTarget>,
    },
    /// Queries the cloud about a node.
    QueryCloud {
        target: NodeTarget,
        task: cloud::CloudTask,
    },
    /// Updates the node according to the cloud's answer.
    ApplyCloudAnswer {
        target: NodeTarget,
        answer: Box<cloud::CloudAnswer>,
    },
}

/// The lease as known from the watch, to compare the one read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) renewed: Option<RemoteTime>,
}

/// The outcome for one pod to evict.
#[derive(Clone, Debug)]
pub(crate) enum EvictionResult {
    /// It was deleted, or is terminating, or was replaced by another pod of its name.
    Gone,
    /// The node's taints no longer require its eviction.
    Stays,
    Failed(RequestError),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum WriteResult {
    Node {
        target: NodeTarget,
        kind: WriteKind,
        /// The node's new resource version.
        outcome: Result<u64, RequestError>,
        /// The node, if it was read again after a conflict.
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
        /// Whether this leader has given the node a new resource version.
        outcome: Result<bool, RequestError>,
        /// The node as it is after the request, if known.
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

/// Runs a request.
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
