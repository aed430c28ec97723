//! Silence of one node: its heartbeats, and the conditions written when they stop.
//!
//! A heartbeat is a change of the lease's renew time or of Ready's heartbeat, as *observed*; the
//! timestamps themselves are never compared with our clock. After the grace period the node's own
//! conditions become Unknown in one write. The network condition is not the node's own and stays.
//! This module decides about one node at a time; [`crate::lifecycle`] knows when to.
//!
//! Two intended differences from upstream: a renew time that goes back counts as a heartbeat too (a
//! node whose clock was set back is still alive), and a node that never posted a status is timed
//! from our first observation of it, not from its creation on another clock. upstream:
//! node_lifecycle_controller.go

use std::time::Duration;

use crate::facts::{
    ConditionKind, ConditionState, Conditions, NodeConditionFacts, NodeHealthFacts,
};
use crate::observation_clock::ObservedTime;
use crate::time::{ControllerTime, RemoteTime};

/// How long a node may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// For a node that has posted a status.
    pub monitor: Duration,
    /// For a node that never posted a status.
    pub startup: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { monitor: Duration::from_secs(50), startup: Duration::from_secs(60) }
    }
}

/// The last heartbeats observed from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeHeartbeats {
    last_seen: ObservedTime,
    heartbeat: Option<RemoteTime>,
    renewed: Option<RemoteTime>,
}

impl NodeHeartbeats {
    /// A node observed for the first time counts as seen now, whatever its timestamps are.
    pub fn first_seen(
        conditions: &Conditions,
        renewed: Option<RemoteTime>,
        at: ObservedTime,
    ) -> Self {
        Self { last_seen: at, heartbeat: heartbeat(conditions), renewed }
    }

    /// Records the node's status. Losing or gaining Ready counts as a heartbeat.
    pub fn observe_status(&mut self, conditions: &Conditions, at: ObservedTime) {
        let seen = heartbeat(conditions);
        if seen != self.heartbeat {
            self.heartbeat = seen;
            self.last_seen = at;
        }
    }

    /// Records the node's lease.
    pub fn observe_lease(&mut self, renewed: RemoteTime, at: ObservedTime) {
        if self.renewed != Some(renewed) {
            self.renewed = Some(renewed);
            self.last_seen = at;
        }
    }

    /// Resets the silence so far.
    pub fn reset_silence(&mut self, at: ObservedTime) {
        self.last_seen = at;
    }

    /// When a heartbeat was last observed.
    pub fn last_seen(&self) -> ObservedTime {
        self.last_seen
    }

    /// When its lease was last renewed, on its own clock.
    pub fn renewed(&self) -> Option<RemoteTime> {
        self.renewed
    }

    /// The end of its grace period.
    pub fn grace_ends_at(&self, grace: &Grace) -> ObservedTime {
        let posted = self.heartbeat.is_some();
        self.last_seen.after(if posted { grace.monitor } else { grace.startup })
    }
}

fn heartbeat(conditions: &Conditions) -> Option<RemoteTime> {
    conditions.get(ConditionKind::Ready).map(|ready| ready.heartbeat)
}

/// Why a condition became Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// It was posted before, and no longer is.
    Stopped,
    /// It was never posted.
    Never,
}

impl UnknownReason {
    /// The condition's reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "NodeStatusUnknown",
            Self::Never => "NodeStatusNeverUpdated",
        }
    }

    /// The condition's message.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Stopped => "Kubelet stopped posting node status.",
            Self::Never => "Kubelet never posted node status.",
        }
    }
}

/// One condition to be written as Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionWrite {
    /// Which one.
    pub kind: ConditionKind,
    /// Why; gives reason and message.
    pub because: UnknownReason,
    /// The whole condition as it is to stand.
    pub condition: NodeConditionFacts,
}

/// What a node's silence means for it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Whether its grace period is over.
    pub silent: bool,
    /// Conditions to write, all in one write; empty if there is nothing to change.
    pub writes: Vec<ConditionWrite>,
    /// Whether the write takes the node from Ready to not ready: once it succeeded, its pods must
    /// be marked and one event recorded.
    pub not_ready_transition: bool,
}

/// The status that a silent node should get. As upstream, nothing is written unless Ready itself
/// changes.
pub fn assess(
    heartbeats: &NodeHeartbeats,
    facts: &NodeHealthFacts,
    grace: &Grace,
    at: ObservedTime,
    now: ControllerTime,
) -> Assessment {
    let silent = at > heartbeats.grace_ends_at(grace);
    let ready = facts.conditions.status(ConditionKind::Ready);
    if !silent || ready == Some(ConditionState::Unknown) {
        return Assessment { silent, writes: Vec::new(), not_ready_transition: false };
    }
    let own =
        ConditionKind::ALL.into_iter().filter(|kind| *kind != ConditionKind::NetworkUnavailable);
    let writes = own.filter_map(|kind| unknown(kind, facts, now)).collect();
    Assessment { silent, writes, not_ready_transition: ready == Some(ConditionState::True) }
}

fn unknown(
    kind: ConditionKind,
    facts: &NodeHealthFacts,
    now: ControllerTime,
) -> Option<ConditionWrite> {
    let (because, heartbeat) = match facts.conditions.get(kind) {
        Some(NodeConditionFacts { status: ConditionState::Unknown, .. }) => return None,
        Some(condition) => (UnknownReason::Stopped, condition.heartbeat),
        None => (UnknownReason::Never, facts.created),
    };
    let condition =
        NodeConditionFacts { status: ConditionState::Unknown, heartbeat, transition: now.stamp() };
    Some(ConditionWrite { kind, because, condition })
}

/// A pod's own Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodReadiness {
    /// Its status; absent where the pod has no such condition.
    pub ready: Option<ConditionState>,
    /// The status of its node's Ready condition; absent where the node has none.
    pub node_ready: Option<ConditionState>,
}

/// Whether this pod's Ready must be set to False because its node is not ready. Pods that never had
/// the condition, and pods on a node without a Ready condition, are left alone.
pub fn must_mark_not_ready(pod: PodReadiness) -> bool {
    let node_lost = matches!(pod.node_ready, Some(ConditionState::False | ConditionState::Unknown));
    let pod_claims = matches!(pod.ready, Some(ConditionState::True | ConditionState::Unknown));
    node_lost && pod_claims
}

/// Event on each pod that was marked: type Warning.
pub const POD_EVENT: (&str, &str) = ("NodeNotReady", "Node is not ready");

/// Events of type Normal on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeHealthEvent {
    /// First observed.
    Registered,
    /// Deleted.
    Removing,
    /// No longer Ready.
    NotReady,
    /// No pod CIDR is free for it.
    CidrNotAvailable,
    /// Its pod CIDR could not be written.
    CidrAssignmentFailed,
    /// The cloud does not know it; it is being deleted.
    Deleting,
    /// Initialized from the cloud.
    Synced,
}

impl NodeHealthEvent {
    /// The event's reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Registered => "RegisteredNode",
            Self::Removing => "RemovingNode",
            Self::NotReady => "NodeNotReady",
            Self::CidrNotAvailable => "CIDRNotAvailable",
            Self::CidrAssignmentFailed => "CIDRAssignmentFailed",
            Self::Deleting => "DeletingNode",
            Self::Synced => "Synced",
        }
    }

    /// The event's message.
    pub fn message(self, node: &str) -> String {
        match self {
            Self::Registered => format!("Node {node} event: Registered Node {node} in Controller"),
            Self::Removing => format!("Node {node} event: Removing Node {node} from Controller"),
            Self::NotReady | Self::CidrNotAvailable | Self::CidrAssignmentFailed => {
                format!("Node {node} status is now: {}", self.reason())
            }
            Self::Deleting => {
                format!("Deleting node {node} because it does not exist in the cloud provider")
            }
            Self::Synced => "Node synced successfully".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
