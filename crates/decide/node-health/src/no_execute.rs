//! When pods on a node with NoExecute taints are evicted.
//!
//! A pod that does not tolerate every such taint is evicted now; one that tolerates them for a
//! time, when the shortest of those times ends; one that tolerates them for ever stays. The time
//! runs from the taint's `timeAdded`, so a new controller computes the same deadline (upstream
//! starts again: a listed difference). It is bounded by what we observed ourselves: not before we
//! last saw the node without the taint, not after we first saw it with it, and not before the pod
//! was bound. A change between the two "lost" taints does not restart the time, and on a Ready node
//! they are leftovers about to be removed and evict no pod. Nothing is deleted on a view that is
//! not proven up to the deadline, nor during the settling time after an absence. upstream:
//! tainteviction

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_model::TaintEffect;

use crate::facts::{NodeHealthFacts, NodeId, PodId, Taint};
use crate::observation_clock::ObservationClock;
use crate::time::{ControllerTime, RemoteTime};

mod tolerations;
pub use tolerations::{Operator, Toleration};

/// Condition that a pod gets before it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisruptionTarget {
    /// The condition's reason; its type is `DisruptionTarget`, its status True.
    pub reason: &'static str,
    /// The condition's message.
    pub message: &'static str,
}

/// The condition of a pod that a taint evicts.
pub const DELETION_BY_TAINT: DisruptionTarget = DisruptionTarget {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
};

/// Reason of the events below; type Normal, on the pod.
pub const EVENT_REASON: &str = "TaintManagerEviction";

/// Message of the event when a pod is deleted; `pod` is namespace and name with a slash between.
pub fn deletion_message(pod: &str) -> String {
    format!("Marking for deletion Pod {pod}")
}

/// Message of the event when a deletion that was due later will not be.
pub fn cancel_message(pod: &str) -> String {
    format!("Cancelling deletion of Pod {pod}")
}

/// The fields of a bound pod that decisions read.
#[derive(Clone, Copy, Debug)]
pub struct BoundPod<'a> {
    /// The pod.
    pub pod: PodId,
    /// Its tolerations, in order: for each taint the first match counts.
    pub tolerations: &'a [Toleration],
    /// When it was bound, from [`bound_at`].
    pub bound: Option<ControllerTime>,
    /// Whether it is being deleted already, so that no decision is needed.
    pub terminating: bool,
}

/// When a pod was bound, on our own clock. The claimed time is from another clock, which may be far
/// ahead of ours: then the pod counts as bound when we first saw it so, and that is passed as
/// `known` from then on. If it were clamped to the present each time, its deadline would move and
/// never come.
pub fn bound_at(
    claimed: Option<RemoteTime>,
    known: Option<ControllerTime>,
    now: ControllerTime,
) -> Option<ControllerTime> {
    let latest = known.unwrap_or(now);
    claimed.map_or(known, |claimed| Some(claimed.assume_local_clock().min(latest)))
}

/// A NoExecute taint and the time from which it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoExecuteTaint {
    /// The taint.
    pub taint: Taint,
    /// Start of the pods' toleration times.
    pub since: ControllerTime,
}

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionDecision {
    /// It stays.
    Keep,
    /// Evict it at this time, or now if that is past.
    EvictAt(ControllerTime),
    /// Evict it now: a taint is not tolerated.
    EvictNow,
}

/// Decides about one pod. The same facts always give the same decision.
pub fn decide_eviction(
    no_execute_taints: &[NoExecuteTaint],
    pod: &BoundPod<'_>,
    comparisons: bool,
) -> EvictionDecision {
    let mut first: Option<ControllerTime> = None;
    for no_execute_taint in no_execute_taints {
        let found =
            pod.tolerations.iter().find(|it| it.tolerates(&no_execute_taint.taint, comparisons));
        let Some(toleration) = found else { return EvictionDecision::EvictNow };
        let Some(seconds) = toleration.seconds else { continue };
        let from =
            pod.bound.map_or(no_execute_taint.since, |bound| bound.max(no_execute_taint.since));
        let ends = from.after(Duration::from_secs(seconds.max(0).unsigned_abs()));
        first = Some(first.map_or(ends, |first| first.min(ends)));
    }
    first.map_or(EvictionDecision::Keep, EvictionDecision::EvictAt)
}

impl EvictionDecision {
    /// Whether the eviction is due at this time.
    pub fn is_eviction_due(self, now: ControllerTime) -> bool {
        match self {
            Self::Keep => false,
            Self::EvictNow => true,
            Self::EvictAt(when) => when <= now,
        }
    }
}

/// What the shell has to do about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodAction {
    /// Write the condition, record the event, delete.
    Delete(PodId),
    /// Record an event that a later deletion is cancelled.
    EmitCancelled(PodId),
}

/// What is known of a node's NoExecute taints.
#[derive(Clone, Debug, Default)]
pub struct NodeNoExecuteTaints {
    no_execute_taints: Vec<NoExecuteTaint>,
    /// The last time at which the node was observed without any such taint.
    clean_at: Option<ControllerTime>,
}

/// All nodes with NoExecute taints and all pods with a scheduled eviction.
#[derive(Clone, Debug, Default)]
pub struct Evictions {
    comparisons: bool,
    nodes: BTreeMap<NodeId, NodeNoExecuteTaints>,
    deadlines: BTreeSet<(ControllerTime, PodId)>,
    scheduled: BTreeMap<PodId, ScheduledEviction>,
}

#[derive(Clone, Copy, Debug)]
struct ScheduledEviction {
    when: ControllerTime,
    node: NodeId,
    /// A deletion failed, and this is its retry time.
    again: bool,
}

impl Evictions {
    /// No evictions. `comparisons`: whether the operators Lt and Gt are enabled.
    pub fn new(comparisons: bool) -> Self {
        Self { comparisons, ..Self::default() }
    }

    /// Records a node's taints, with the pods on it.
    pub fn observe_node<'a>(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        facts: &NodeHealthFacts,
        pods: impl IntoIterator<Item = BoundPod<'a>>,
    ) -> Vec<PodAction> {
        let known = self.nodes.entry(node).or_default();
        let no_execute_taints = known.seen(now, facts.conditions.is_ready(), &facts.taints);
        known.clean_at = Some(now);
        if no_execute_taints.is_empty() && known.no_execute_taints.is_empty() {
            return Vec::new();
        }
        known.no_execute_taints = no_execute_taints;
        let mut actions = Vec::new();
        for pod in pods {
            self.reevaluate(now, node, &pod, &mut actions);
        }
        actions
    }

    /// Records that a node known without such taints had none up to this time, since the view was
    /// complete. Without this the last *change* of a quiet node would be the bound for a taint with
    /// an untrusted `timeAdded`.
    pub fn confirm_untainted(&mut self, node: NodeId, through: ControllerTime) {
        if let Some(known) = self.nodes.get_mut(&node)
            && known.no_execute_taints.is_empty()
        {
            known.clean_at = known.clean_at.max(Some(through));
        }
    }

    /// Records that a node with these pods is gone; its evictions are left to the garbage
    /// collection of orphans.
    pub fn on_node_deleted(&mut self, node: NodeId, pods: impl IntoIterator<Item = PodId>) {
        self.nodes.remove(&node);
        for pod in pods {
            if self.scheduled.get(&pod).is_some_and(|scheduled| scheduled.node == node) {
                self.drop_schedule(pod);
            }
        }
    }

    /// Records a new or changed pod on a node.
    pub fn observe_pod(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        pod: &BoundPod<'_>,
    ) -> Vec<PodAction> {
        let mut actions = Vec::new();
        self.reevaluate(now, node, pod, &mut actions);
        actions
    }

    /// Records that a pod is gone. Returns its deadline, if it had one: before that time the caller
    /// emits a cancellation event.
    pub fn on_pod_deleted(&mut self, pod: PodId) -> Option<ControllerTime> {
        self.drop_schedule(pod)
    }

    fn reevaluate(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        pod: &BoundPod<'_>,
        actions: &mut Vec<PodAction>,
    ) {
        let no_execute_taints =
            self.nodes.get(&node).map_or(&[][..], |known| &known.no_execute_taints);
        let eviction_decision = decide_eviction(no_execute_taints, pod, self.comparisons);
        let known = self.scheduled.get(&pod.pod).copied();
        if let Some(known) = known
            && known.again
            && !pod.terminating
            && eviction_decision.is_eviction_due(now)
        {
            return;
        }
        // Nothing left to do; the deadline is kept for the cancellation event when the pod is gone.
        if pod.terminating && eviction_decision != EvictionDecision::Keep {
            if let Some(known) = known {
                self.deadlines.remove(&(known.when, pod.pod));
            }
            return;
        }
        self.drop_schedule(pod.pod);
        let due_later = known.is_some_and(|known| known.when > now);
        match eviction_decision {
            EvictionDecision::Keep if known.is_some() => {
                actions.push(PodAction::EmitCancelled(pod.pod));
            }
            EvictionDecision::Keep => {}
            EvictionDecision::EvictAt(when) => self.schedule(pod.pod, when, node, false),
            EvictionDecision::EvictNow => {
                // An eviction due now replaces the one scheduled for later.
                if due_later {
                    actions.push(PodAction::EmitCancelled(pod.pod));
                }
                self.schedule(pod.pod, now, node, false);
            }
        }
    }

    fn schedule(&mut self, pod: PodId, when: ControllerTime, node: NodeId, again: bool) {
        // One deadline per pod: a second one would outlive its entry.
        self.drop_schedule(pod);
        self.deadlines.insert((when, pod));
        self.scheduled.insert(pod, ScheduledEviction { when, node, again });
    }

    fn drop_schedule(&mut self, pod: PodId) -> Option<ControllerTime> {
        let known = self.scheduled.remove(&pod)?;
        self.deadlines.remove(&(known.when, pod));
        Some(known.when)
    }

    /// Pods whose deadline has passed, as far as the view is proven.
    pub fn due(
        &mut self,
        now: ControllerTime,
        observation_clock: &ObservationClock,
    ) -> Vec<PodAction> {
        let mut actions = Vec::new();
        let Some(reach) = observation_clock.through().filter(|_| observation_clock.may_act(now))
        else {
            return actions;
        };
        while let Some((when, pod)) = self.deadlines.first().copied() {
            if when > reach {
                break;
            }
            self.drop_schedule(pod);
            actions.push(PodAction::Delete(pod));
        }
        actions
    }

    /// Records a failed deletion. It is due again at this time, if the node's taints still evict
    /// the pod.
    pub fn delete_failed(&mut self, node: NodeId, pod: PodId, again_at: ControllerTime) {
        if !self.no_execute_taints(node).is_empty() {
            self.schedule(pod, again_at, node, true);
        }
    }

    /// When the next pod is due.
    pub fn next_wake(&self) -> Option<ControllerTime> {
        self.deadlines.first().map(|(when, _)| *when)
    }

    /// A pod's deadline.
    pub fn deadline(&self, pod: PodId) -> Option<ControllerTime> {
        self.scheduled.get(&pod).map(|scheduled| scheduled.when)
    }

    /// The taints that count on a node.
    pub fn no_execute_taints(&self, node: NodeId) -> &[NoExecuteTaint] {
        self.nodes.get(&node).map_or(&[], |known| &known.no_execute_taints)
    }

    /// What is known of a node's taints, for a caller that reads the node again.
    pub fn known(&self, node: NodeId) -> NodeNoExecuteTaints {
        self.nodes.get(&node).cloned().unwrap_or_default()
    }

    /// Whether the operators Lt and Gt are enabled.
    pub fn compares(&self) -> bool {
        self.comparisons
    }
}

impl NodeNoExecuteTaints {
    /// Those of the node's current taints that count, each with its start.
    pub fn seen(&self, now: ControllerTime, ready: bool, taints: &[Taint]) -> Vec<NoExecuteTaint> {
        let counts = |taint: &&Taint| {
            taint.effect == TaintEffect::NoExecute && !(ready && taint.key.means_lost())
        };
        taints.iter().filter(counts).map(|taint| self.no_execute_taint(taint, now)).collect()
    }

    fn no_execute_taint(&self, taint: &Taint, now: ControllerTime) -> NoExecuteTaint {
        let since = self.inherited(taint).unwrap_or_else(|| {
            let added = taint.added.map_or(now, RemoteTime::assume_local_clock);
            let earliest = self.clean_at.unwrap_or(ControllerTime::from_nanos(i64::MIN));
            added.max(earliest).min(now)
        });
        NoExecuteTaint { taint: taint.clone(), since }
    }

    /// The same taint, or the twin that it replaced, keeps its start. A taint with the same key and
    /// another `timeAdded` was removed and set again while we did not look: it is new.
    fn inherited(&self, taint: &Taint) -> Option<ControllerTime> {
        if let Some(known) =
            self.no_execute_taints.iter().find(|known| known.taint.key == taint.key)
        {
            return is_same_second(known.taint.added, taint.added).then_some(known.since);
        }
        let twin = |known: &&NoExecuteTaint| known.taint.key.means_lost() && taint.key.means_lost();
        self.no_execute_taints.iter().find(twin).map(|known| known.since)
    }
}

/// The API server keeps whole seconds, and we know our own taint before it comes back truncated.
fn is_same_second(known: Option<RemoteTime>, seen: Option<RemoteTime>) -> bool {
    match (known, seen) {
        (Some(known), Some(seen)) => known.nanos().abs_diff(seen.nanos()) < 1_000_000_000,
        (known, seen) => known == seen,
    }
}

#[cfg(test)]
mod tests;
