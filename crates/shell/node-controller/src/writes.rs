//! What is sent, and what came of it: each write is one task that ends with a value.
//!
//! Rule: a write carries every choice that was made for it; it looks at the world only to find out
//! that the choice no longer holds, and then says so instead of choosing anew.

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

/// A node as a write has to know it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) version: String,
}

/// A pod as a write has to know it.
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

/// A pod that has to go, and what shows whether it still has to.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    pub(crate) pod: PodTarget,
    /// Since when it has to.
    pub(crate) due: Moment,
    pub(crate) tolerations: Arc<[Toleration]>,
    pub(crate) bound: Option<Moment>,
}

/// Something to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// With `confirm`, the node's lease is read first: nobody is called silent whom a live read
    /// shows to be alive. It carries what we know of the lease.
    Conditions {
        target: Target,
        writes: Vec<ConditionWrite>,
        confirm: Option<Confirm>,
    },
    Taints {
        target: Target,
        wanted: Vec<Taint>,
        known: Vec<Taint>,
        /// What new ones say of when they were added.
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
    /// `whole`: all pods of the node, because it fell.
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
    /// A question, which writes nothing.
    AskCloud {
        target: Target,
        task: cloud::Task,
    },
    /// What follows from its answer.
    FollowCloud {
        target: Target,
        answer: Box<cloud::Answer>,
    },
}

/// What a live read of a lease is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) renewed: Option<Stamp>,
}

/// What became of a pod.
#[derive(Clone, Debug)]
pub(crate) enum PodFate {
    /// It is deleted, or on its way out, or another by now.
    Gone,
    /// Its node no longer sends it away.
    Stays,
    Failed(Failure),
}

/// What came of a write.
#[derive(Debug)]
pub(crate) enum Done {
    Node {
        target: Target,
        kind: WriteKind,
        /// The version that it has now.
        outcome: Result<u64, Failure>,
        /// The node as a read found it, where one was made.
        fresh: Option<Box<Node>>,
        /// It was given up by this.
        gave_up: bool,
    },
    /// A lease that was read instead of written against.
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
        /// Whether the node is in a version that we made.
        outcome: Result<bool, Failure>,
        /// The node as it is since.
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
        /// The node as a read found it, where that is news.
        fresh: Option<Option<Box<Node>>>,
    },
    Cleared {
        pod: PodTarget,
        why: Why,
        /// Whether there was still a reason to.
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

/// Sends it.
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
