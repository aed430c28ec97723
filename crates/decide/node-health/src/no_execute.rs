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

use crate::attention::Attention;
use crate::facts::{NodeFacts, NodeId, PodId, Taint};
use crate::time::{Moment, Stamp};

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
pub struct PodFacts<'a> {
    /// The pod.
    pub pod: PodId,
    /// Its tolerations, in order: for each taint the first match counts.
    pub tolerations: &'a [Toleration],
    /// When it was bound, from [`bound_at`].
    pub bound: Option<Moment>,
    /// Whether it is being deleted already, so that no decision is needed.
    pub terminating: bool,
}

/// When a pod was bound, on our own clock. The claimed time is from another clock, which may be far
/// ahead of ours: then the pod counts as bound when we first saw it so, and that is passed as
/// `known` from then on. If it were clamped to the present each time, its deadline would move and
/// never come.
pub fn bound_at(claimed: Option<Stamp>, known: Option<Moment>, now: Moment) -> Option<Moment> {
    let latest = known.unwrap_or(now);
    claimed.map_or(known, |claimed| Some(claimed.taken_as_ours().min(latest)))
}

/// A NoExecute taint and the time from which it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threat {
    /// The taint.
    pub taint: Taint,
    /// Start of the pods' toleration times.
    pub since: Moment,
}

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Stays,
    /// Evict it at this time, or now if that is past.
    Goes(Moment),
    /// Evict it now: a taint is not tolerated.
    GoesNow,
}

/// Decides about one pod. The same facts always give the same decision.
pub fn judge(threats: &[Threat], pod: &PodFacts<'_>, comparisons: bool) -> Verdict {
    let mut first: Option<Moment> = None;
    for threat in threats {
        let found = pod.tolerations.iter().find(|it| it.tolerates(&threat.taint, comparisons));
        let Some(toleration) = found else { return Verdict::GoesNow };
        let Some(seconds) = toleration.seconds else { continue };
        let from = pod.bound.map_or(threat.since, |bound| bound.max(threat.since));
        let ends = from.after(Duration::from_secs(seconds.max(0).unsigned_abs()));
        first = Some(first.map_or(ends, |first| first.min(ends)));
    }
    first.map_or(Verdict::Stays, Verdict::Goes)
}

impl Verdict {
    /// Whether the eviction is due at this time.
    pub fn has_to_go(self, now: Moment) -> bool {
        match self {
            Self::Stays => false,
            Self::GoesNow => true,
            Self::Goes(when) => when <= now,
        }
    }
}

/// What the shell has to do about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodAction {
    /// Write the condition, record the event, delete.
    Delete(PodId),
    /// Record an event that a later deletion is cancelled.
    TellCancelled(PodId),
}

/// What is known of a node's NoExecute taints.
#[derive(Clone, Debug, Default)]
pub struct NodeThreats {
    threats: Vec<Threat>,
    /// The last time at which the node was observed without any such taint.
    clean_at: Option<Moment>,
}

/// All nodes with NoExecute taints and all pods with a scheduled eviction.
#[derive(Clone, Debug, Default)]
pub struct Evictions {
    comparisons: bool,
    nodes: BTreeMap<NodeId, NodeThreats>,
    deadlines: BTreeSet<(Moment, PodId)>,
    scheduled: BTreeMap<PodId, Scheduled>,
}

#[derive(Clone, Copy, Debug)]
struct Scheduled {
    when: Moment,
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
    pub fn node_seen<'a>(
        &mut self,
        now: Moment,
        node: NodeId,
        facts: &NodeFacts,
        pods: impl IntoIterator<Item = PodFacts<'a>>,
    ) -> Vec<PodAction> {
        let known = self.nodes.entry(node).or_default();
        let threats = known.seen(now, facts.conditions.is_ready(), &facts.taints);
        known.clean_at = Some(now);
        if threats.is_empty() && known.threats.is_empty() {
            return Vec::new();
        }
        known.threats = threats;
        let mut actions = Vec::new();
        for pod in pods {
            self.weigh(now, node, &pod, &mut actions);
        }
        actions
    }

    /// Records that a node known without such taints had none up to this time, since the view was
    /// complete. Without this the last *change* of a quiet node would be the bound for a taint with
    /// an untrusted `timeAdded`.
    pub fn still_clean(&mut self, node: NodeId, through: Moment) {
        if let Some(known) = self.nodes.get_mut(&node)
            && known.threats.is_empty()
        {
            known.clean_at = known.clean_at.max(Some(through));
        }
    }

    /// Records that a node with these pods is gone; its evictions are left to the garbage
    /// collection of orphans.
    pub fn node_gone(&mut self, node: NodeId, pods: impl IntoIterator<Item = PodId>) {
        self.nodes.remove(&node);
        for pod in pods {
            if self.scheduled.get(&pod).is_some_and(|scheduled| scheduled.node == node) {
                self.drop_schedule(pod);
            }
        }
    }

    /// Records a new or changed pod on a node.
    pub fn pod_seen(&mut self, now: Moment, node: NodeId, pod: &PodFacts<'_>) -> Vec<PodAction> {
        let mut actions = Vec::new();
        self.weigh(now, node, pod, &mut actions);
        actions
    }

    /// Records that a pod is gone. Returns its deadline, if it had one: before that time the caller
    /// emits a cancellation event.
    pub fn pod_gone(&mut self, pod: PodId) -> Option<Moment> {
        self.drop_schedule(pod)
    }

    fn weigh(
        &mut self,
        now: Moment,
        node: NodeId,
        pod: &PodFacts<'_>,
        actions: &mut Vec<PodAction>,
    ) {
        let threats = self.nodes.get(&node).map_or(&[][..], |known| &known.threats);
        let verdict = judge(threats, pod, self.comparisons);
        let known = self.scheduled.get(&pod.pod).copied();
        if let Some(known) = known
            && known.again
            && !pod.terminating
            && verdict.has_to_go(now)
        {
            return;
        }
        // Nothing left to do; the deadline is kept for the cancellation event when the pod is gone.
        if pod.terminating && verdict != Verdict::Stays {
            if let Some(known) = known {
                self.deadlines.remove(&(known.when, pod.pod));
            }
            return;
        }
        self.drop_schedule(pod.pod);
        let due_later = known.is_some_and(|known| known.when > now);
        match verdict {
            Verdict::Stays if known.is_some() => {
                actions.push(PodAction::TellCancelled(pod.pod));
            }
            Verdict::Stays => {}
            Verdict::Goes(when) => self.schedule(pod.pod, when, node, false),
            Verdict::GoesNow => {
                // An eviction due now replaces the one scheduled for later.
                if due_later {
                    actions.push(PodAction::TellCancelled(pod.pod));
                }
                self.schedule(pod.pod, now, node, false);
            }
        }
    }

    fn schedule(&mut self, pod: PodId, when: Moment, node: NodeId, again: bool) {
        // One deadline per pod: a second one would outlive its entry.
        self.drop_schedule(pod);
        self.deadlines.insert((when, pod));
        self.scheduled.insert(pod, Scheduled { when, node, again });
    }

    fn drop_schedule(&mut self, pod: PodId) -> Option<Moment> {
        let known = self.scheduled.remove(&pod)?;
        self.deadlines.remove(&(known.when, pod));
        Some(known.when)
    }

    /// Pods whose deadline has passed, as far as the view is proven.
    pub fn due(&mut self, now: Moment, attention: &Attention) -> Vec<PodAction> {
        let mut actions = Vec::new();
        let Some(reach) = attention.through().filter(|_| attention.may_act(now)) else {
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
    pub fn delete_failed(&mut self, node: NodeId, pod: PodId, again_at: Moment) {
        if !self.threats(node).is_empty() {
            self.schedule(pod, again_at, node, true);
        }
    }

    /// When the next pod is due.
    pub fn next_wake(&self) -> Option<Moment> {
        self.deadlines.first().map(|(when, _)| *when)
    }

    /// A pod's deadline.
    pub fn deadline(&self, pod: PodId) -> Option<Moment> {
        self.scheduled.get(&pod).map(|scheduled| scheduled.when)
    }

    /// The taints that count on a node.
    pub fn threats(&self, node: NodeId) -> &[Threat] {
        self.nodes.get(&node).map_or(&[], |known| &known.threats)
    }

    /// What is known of a node's taints, for a caller that reads the node again.
    pub fn known(&self, node: NodeId) -> NodeThreats {
        self.nodes.get(&node).cloned().unwrap_or_default()
    }

    /// Whether the operators Lt and Gt are enabled.
    pub fn compares(&self) -> bool {
        self.comparisons
    }
}

impl NodeThreats {
    /// Those of the node's current taints that count, each with its start.
    pub fn seen(&self, now: Moment, ready: bool, taints: &[Taint]) -> Vec<Threat> {
        let counts = |taint: &&Taint| {
            taint.effect == TaintEffect::NoExecute && !(ready && taint.key.means_lost())
        };
        taints.iter().filter(counts).map(|taint| self.threat(taint, now)).collect()
    }

    fn threat(&self, taint: &Taint, now: Moment) -> Threat {
        let since = self.inherited(taint).unwrap_or_else(|| {
            let added = taint.added.map_or(now, Stamp::taken_as_ours);
            let earliest = self.clean_at.unwrap_or(Moment::from_nanos(i64::MIN));
            added.max(earliest).min(now)
        });
        Threat { taint: taint.clone(), since }
    }

    /// The same taint, or the twin that it replaced, keeps its start. A taint with the same key and
    /// another `timeAdded` was removed and set again while we did not look: it is new.
    fn inherited(&self, taint: &Taint) -> Option<Moment> {
        if let Some(known) = self.threats.iter().find(|known| known.taint.key == taint.key) {
            return same_time(known.taint.added, taint.added).then_some(known.since);
        }
        let twin = |known: &&Threat| known.taint.key.means_lost() && taint.key.means_lost();
        self.threats.iter().find(twin).map(|known| known.since)
    }
}

/// The API server keeps whole seconds, and we know our own taint before it comes back truncated.
fn same_time(known: Option<Stamp>, seen: Option<Stamp>) -> bool {
    match (known, seen) {
        (Some(known), Some(seen)) => known.nanos().abs_diff(seen.nanos()) < 1_000_000_000,
        (known, seen) => known == seen,
    }
}

#[cfg(test)]
mod tests;
