//! Requests and their outcomes: each request is one task that ends with a value.
//!
//! Rule: a request carries every choice that was made for it; it reads the cluster only to find
//! that the choice no longer applies, and then reports so instead of choosing again.

use std::sync::Arc;

use node_health::health::ConditionWrite;
use node_health::lifecycle::WriteKind;
use node_health::no_execute::{NodeThreats, Toleration};
use node_health::pod_cleanup::Why;
use node_health::{Moment, NodeId, PodId, Stamp, Taint};
use ports::ApiTime;
use ports::cluster_objects::Node;

use crate::gate::{Failure, Gate};
use crate::uid::Uid;

pub(crate) mod cloud;
pub(crate) mod node;
pub(crate) mod pods;
pub(crate) mod probe;

/// A node, as far as a write needs it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
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
pub(crate) struct Leaving {
    pub(crate) pod: PodTarget,
    /// Its deadline.
    pub(crate) due: Moment,
    pub(crate) tolerations: Arc<[Toleration]>,
    pub(crate) bound: Option<Moment>,
}

/// A request to the API server or the cloud, done as one task. Most write; `LookFor`, `Probe` and
/// `AskCloud` only read. Its outcome is a `Done`.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// With `confirm`, the node's lease is read first: no node is marked Unknown whose lease turns
    /// out to be renewed. It carries the lease as known.
    Conditions {
        target: Target,
        writes: Vec<ConditionWrite>,
        confirm: Option<Confirm>,
    },
    Taints {
        target: Target,
        wanted: Vec<Taint>,
        known: Vec<Taint>,
        /// `timeAdded` of new taints.
        wall: ApiTime,
        gives_up: bool,
    },
    Labels {
        target: Target,
        labels: Vec<(Box<str>, Box<str>)>,
    },
    Range {
        target: Target,
        ranges: Vec<String>,
    },
    /// Makes a new version of the node, with this value, which no other such write has.
    Touch {
        target: Target,
        value: String,
    },
    /// `whole`: all pods of the node, because it became not ready.
    MarkPods {
        target: Target,
        pods: Vec<PodTarget>,
        whole: bool,
    },
    Evict {
        target: Target,
        pods: Vec<Leaving>,
        /// The taints that it was decided on.
        known: NodeThreats,
    },
    Clear {
        pod: PodTarget,
        why: Why,
        node: Option<Box<str>>,
        fail_first: bool,
        condition: bool,
    },
    LookFor {
        names: Vec<Box<str>>,
    },
    Probe {
        nodes: Vec<Target>,
    },
    /// Queries the cloud about a node; the answer comes back as an outcome.
    AskCloud {
        target: Target,
        task: cloud::Task,
    },
    /// Writes what follows from the cloud's answer.
    FollowCloud {
        target: Target,
        answer: Box<cloud::Answer>,
    },
}

/// The known lease, to compare a live read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) renewed: Option<Stamp>,
}

/// What became of a pod to evict.
#[derive(Clone, Debug)]
pub(crate) enum PodFate {
    /// It is deleted, or terminating, or another pod by now.
    Gone,
    /// Its node's taints no longer evict it.
    Stays,
    Failed(Failure),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Done {
    Node {
        target: Target,
        kind: WriteKind,
        /// The new version.
        outcome: Result<u64, Failure>,
        /// The node as read again, if it was.
        fresh: Option<Box<Node>>,
        /// This write added the NoExecute taint.
        gave_up: bool,
    },
    /// The lease was renewed, so nothing was written.
    Alive {
        target: Target,
        renewed: Stamp,
    },
    Range {
        target: Target,
        outcome: Result<(), Failure>,
        fresh: Option<Box<Node>>,
    },
    Touched {
        target: Target,
        /// Whether the node has a version made by this leader.
        outcome: Result<bool, Failure>,
        /// The node as read again since.
        fresh: Option<Box<Node>>,
    },
    Marked {
        target: Target,
        failures: Vec<(PodTarget, Failure)>,
        whole: bool,
    },
    Evicted {
        target: Target,
        fates: Vec<(PodTarget, PodFate)>,
        /// The node as read (inner `None`: there is none), if some of the pods stay.
        fresh: Option<Option<Box<Node>>>,
    },
    Cleared {
        pod: PodTarget,
        why: Why,
        /// Whether the reason still applied.
        outcome: Result<bool, Failure>,
    },
    LookedFor {
        answers: Vec<(Box<str>, Result<bool, Failure>)>,
    },
    Probed(probe::Probed),
    CloudSaid {
        target: Target,
        task: cloud::Task,
        outcome: Result<Option<Box<cloud::Answer>>, cloud::Trouble>,
    },
    CloudFollowed {
        target: Target,
        task: cloud::Task,
        outcome: Result<cloud::Outcome, cloud::Trouble>,
    },
}

/// Executes a request.
pub(crate) async fn perform(gate: Gate, write: Write) -> Done {
    match write {
        Write::Conditions { target, writes, confirm } => {
            node::conditions(&gate, target, &writes, confirm).await
        }
        Write::Taints { target, wanted, known, wall, gives_up } => {
            node::taints(&gate, target, (&wanted, &known, wall), gives_up).await
        }
        Write::Labels { target, labels } => node::labels(&gate, target, &labels).await,
        Write::Range { target, ranges } => node::range(&gate, target, &ranges).await,
        Write::Touch { target, value } => node::touch(&gate, target, &value).await,
        Write::MarkPods { target, pods, whole } => pods::mark(&gate, target, pods, whole).await,
        Write::Evict { target, pods, known } => pods::evict(&gate, target, pods, &known).await,
        Write::Clear { pod, why, node, fail_first, condition } => {
            let outcome = pods::clear(&gate, &pod, why, node, (fail_first, condition)).await;
            Done::Cleared { pod, why, outcome }
        }
        Write::LookFor { names } => node::look_for(&gate, names).await,
        Write::Probe { nodes } => Done::Probed(probe::probe(&gate, nodes).await),
        Write::AskCloud { target, task } => {
            let outcome = cloud::ask(&gate, &target, task).await;
            Done::CloudSaid { target, task, outcome: outcome.map(|answer| answer.map(Box::new)) }
        }
        Write::FollowCloud { target, answer } => {
            let outcome = cloud::follow(&gate, &target, &answer).await;
            Done::CloudFollowed { target, task: answer.task, outcome }
        }
    }
}
