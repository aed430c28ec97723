//! Carries decisions out as writes.
//!
//! Rule: a queued write is checked again before it is sent: the version it was decided on, the
//! node's silence, the leader's right to act. One that no longer applies is reported as failed, and
//! decided again.

use node_health::health::{NodeEvent, PodReadiness, pod_to_be_marked};
use node_health::lifecycle::{Action, Outcome, WriteKind};
use node_health::no_execute::{EVENT_REASON, PodAction, cancel_message, judge};
use node_health::taints::TaintPatch;
use node_health::{Moment, NodeId, PodId, Stamp};
use pod_model::TaintEffect;

use super::queue::{Due, Pending};
use super::{Engine, Marking};
use crate::events::{About, Said};
use crate::pods::PodEntry;
use crate::writes::pods::TOGETHER;
use crate::writes::{Confirm, Leaving, PodTarget, Target, Write, perform};

const COMPONENT: &str = "node-controller";
/// The component of pod CIDR events. upstream: nodeipam/ipam/range_allocator.go
pub(super) const RANGES: &str = "cidrAllocator";

pub(super) fn pod_target(pod: PodId, entry: &PodEntry) -> PodTarget {
    PodTarget {
        pod,
        uid: entry.uid.clone(),
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        version: entry.version,
    }
}

impl Engine {
    pub(super) fn target(&self, node: NodeId) -> Option<Target> {
        let known = self.names.known(node)?;
        let version = match &known.odd_version {
            Some(text) => text.to_string(),
            None => self.lifecycle.facts(node)?.version.to_string(),
        };
        Some(Target {
            node,
            incarnation: self.names.incarnation(node)?,
            name: self.names.name(node)?.clone(),
            uid: known.uid.clone(),
            version,
        })
    }

    /// Whether an outcome concerns the node that has this handle now.
    pub(super) fn is_current(&self, target: &Target) -> bool {
        self.names.incarnation(target.node) == Some(target.incarnation)
    }

    pub(super) fn tell_node(&self, node: NodeId, event: NodeEvent) {
        let (Some(name), Some(known)) = (self.names.name(node), self.names.known(node)) else {
            return;
        };
        if !self.shared.events.has_room() {
            return;
        }
        let about = About::node(name, &known.uid.to_string());
        let message = event.message(name);
        let component = match event {
            NodeEvent::CidrNotAvailable | NodeEvent::CidrAssignmentFailed => RANGES,
            _ => COMPONENT,
        };
        self.shared.events.tell(about, Said::normal(component, event.reason(), message));
    }

    /// Takes the actions of the node decisions.
    pub(super) fn act(&mut self, actions: Vec<Action>) {
        if !self.shared.checked.config.enabled.node_lifecycle {
            return;
        }
        for action in actions {
            match action {
                Action::Tell { node, event } => self.tell_node(node, event),
                action => self.queue.push(Pending::Action(action)),
            }
        }
    }

    pub(super) fn pod_actions(&mut self, actions: Vec<PodAction>) {
        for action in actions {
            // Deletions come only from the deadlines.
            let PodAction::TellCancelled(pod) = action else { continue };
            let Some(entry) = self.pods.get(pod) else { continue };
            let about = About::pod(&pod_target(pod, entry));
            let message = cancel_message(&entry.full_name());
            let said = Said::normal("taint-eviction-controller", EVENT_REASON, message);
            self.shared.events.tell(about, said);
        }
    }

    /// Queues the pods whose deadline has passed, node by node.
    pub(super) fn send_away(&mut self, now: Moment) {
        if !self.shared.checked.config.enabled.taint_eviction {
            return;
        }
        let due = self.evictions.due(now, self.lifecycle.attention());
        let mut by_node = std::collections::BTreeMap::<NodeId, Vec<_>>::new();
        for action in due {
            let PodAction::Delete(pod) = action else { continue };
            let Some(entry) = self.pods.get(pod) else { continue };
            let Some(node) = entry.node else { continue };
            self.leaving.insert(entry.uid.clone());
            by_node.entry(node).or_default().push((pod, entry.uid.clone(), now));
        }
        for (node, pods) in by_node {
            self.queue.push(Pending::Evict(node, pods));
        }
    }

    pub(super) fn must_be_marked(&self, pod: PodId, node: NodeId) -> bool {
        let Some(entry) = self.pods.get(pod) else { return false };
        let node_ready = self.lifecycle.node_ready(node);
        self.shared.checked.config.enabled.node_lifecycle
            && pod_to_be_marked(PodReadiness { ready: entry.ready, node_ready })
    }

    pub(super) fn room(&self) -> usize {
        self.shared.checked.config.writes.at_once.max(1)
    }

    /// Sends queued writes, up to the limit.
    pub(super) fn start_writes(&mut self) {
        let now = self.now();
        self.start_questions(now);
        while self.writes.len() < self.room() && now >= self.hold_until {
            let Some(pending) = self.queue.pop() else { return };
            let node = pending.writes_to();
            match self.prepare(now, pending) {
                Some(write) => {
                    self.writes.spawn(perform(self.gate.clone(), write));
                }
                None => {
                    if let Some(node) = node {
                        self.queue.free(node);
                    }
                }
            }
        }
    }

    fn prepare(&mut self, now: Moment, pending: Pending) -> Option<Write> {
        match pending {
            Pending::Action(action) => self.prepare_action(now, action),
            // A terminating node gets no pod CIDR; the allocation is kept until it is gone.
            Pending::Range(node) if self.is_ending(node) => None,
            Pending::Range(node) => {
                let ranges = self.ranges.as_ref()?.pending(node)?;
                Some(Write::Range { target: self.target(node)?, ranges })
            }
            Pending::Touch(node) => self.prepare_touch(node),
            Pending::MarkPod(pod, uid) => {
                let entry = self.pods.get(pod).filter(|entry| entry.uid == uid)?;
                let node = entry.node.filter(|node| self.must_be_marked(pod, *node))?;
                let pods = vec![pod_target(pod, entry)];
                Some(Write::MarkPods { target: self.target(node)?, pods, whole: false })
            }
            Pending::MarkMore(node) => self.mark_more(now, node),
            Pending::Evict(node, pods) => self.prepare_eviction(now, node, pods),
            Pending::Clear(delete, uid) => self.prepare_clearing(&delete, &uid),
            Pending::Cloud(node, answer) => self.prepare_following(now, node, answer),
        }
    }

    fn prepare_action(&mut self, now: Moment, action: Action) -> Option<Write> {
        match action {
            Action::Tell { .. } => None,
            Action::WriteConditions { node, version, writes } => {
                let holds = self.lifecycle.is_silent(node)
                    && self.lifecycle.attention().may_act(now)
                    && self.is_version(node, version);
                if !holds {
                    return self.take_back(now, node, WriteKind::Conditions);
                }
                let renewed = self.lifecycle.renewed(node);
                let confirm = (!self.sight.is_lively(now)).then_some(Confirm { renewed });
                Some(Write::Conditions { target: self.target(node)?, writes, confirm })
            }
            Action::PatchTaints { node, version, patch } => {
                let may = !patch.evicts() || self.lifecycle.attention().may_act(now);
                let odd = self.names.known(node).is_some_and(|known| known.odd_taints);
                // It is decided again when all taints parse: until then there is nothing to retry.
                if odd {
                    self.unreadable.insert(node);
                    return None;
                }
                if !may || !self.is_version(node, version) {
                    return self.take_back(now, node, WriteKind::Taints);
                }
                let known = self.lifecycle.facts(node)?.taints.clone();
                let wanted = patch.apply(&known);
                let gives_up = patch.evicts() && !is_swap(&patch);
                let target = self.target(node)?;
                // Before the write is sent: the watch must not show the taint with an unexpected
                // time.
                let wall = self.shared.clock.wall();
                self.lifecycle.taints_dated(node, Stamp::from_nanos(wall.nanos()));
                Some(Write::Taints { target, wanted, known, wall, gives_up })
            }
            Action::SetLabels { node, version, labels } => {
                if !self.is_version(node, version) {
                    return self.take_back(now, node, WriteKind::Labels);
                }
                Some(Write::Labels { target: self.target(node)?, labels })
            }
            Action::MarkPodsNotReady { node } => {
                let pods = self.names.pods(node).iter().copied();
                let pods = pods.filter_map(|pod| Some((pod, self.pods.get(pod)?.uid.clone())));
                let behind = pods.collect();
                // It became not ready again: the marks in flight finish first, then all pods are
                // marked again.
                if let Some(marking) = self.marking.get_mut(&node) {
                    marking.behind = behind;
                    return None;
                }
                self.marking.insert(node, Marking { behind, failed: false });
                self.mark_more(now, node)
            }
        }
    }

    /// The next few pods to mark on a node that became not ready, if it still is and they are
    /// ready.
    fn mark_more(&mut self, now: Moment, node: NodeId) -> Option<Write> {
        let target = self.target(node)?;
        let mut marking = self.marking.remove(&node)?;
        let mut pods: Vec<PodTarget> = Vec::new();
        while pods.len() < TOGETHER
            && let Some((pod, uid)) = marking.behind.pop_front()
        {
            // A pod whose mark was refused is retried separately.
            let waits = self.refused_marks.contains(&uid);
            let entry = self.pods.get(pod).filter(|entry| entry.uid == uid && !waits);
            if let Some(entry) = entry.filter(|_| self.must_be_marked(pod, node)) {
                pods.push(pod_target(pod, entry));
            }
        }
        if pods.is_empty() {
            self.lifecycle.pods_marked(now, node, !marking.failed);
            return None;
        }
        self.marking.insert(node, marking);
        Some(Write::MarkPods { target, pods, whole: true })
    }

    fn is_version(&self, node: NodeId, version: u64) -> bool {
        self.lifecycle.facts(node).is_some_and(|facts| facts.version == version)
    }

    /// Drops a write that no longer fits the node, before it is sent. It is reported to the
    /// decisions as failed, so that they decide again after their retry pause. Returns `None` for
    /// the caller to return.
    pub(super) fn take_back(
        &mut self,
        now: Moment,
        node: NodeId,
        kind: WriteKind,
    ) -> Option<Write> {
        let actions = self.lifecycle.written(now, node, kind, Outcome::Failed);
        self.act(actions);
        None
    }

    /// The next few pods that the taints still evict; the rest are evaluated again when these are
    /// gone.
    fn prepare_eviction(&mut self, now: Moment, node: NodeId, pods: Vec<Due>) -> Option<Write> {
        if let Some(behind) = self.evicting.get_mut(&node) {
            behind.extend(pods);
            return None;
        }
        let Some(target) = self.target(node) else {
            for (_, uid, _) in pods {
                self.leaving.remove(&uid);
            }
            return None;
        };
        let may_act = self.lifecycle.attention().may_act(now);
        let mut leave = Vec::new();
        let mut pods = pods.into_iter();
        while leave.len() < TOGETHER
            && let Some((pod, uid, due)) = pods.next()
        {
            let Some(entry) = self.pods.get(pod).filter(|entry| entry.uid == uid) else { continue };
            let facts = entry.facts(pod);
            let threats = self.evictions.threats(node);
            let verdict = judge(threats, &facts, self.evictions.compares());
            if may_act && verdict.has_to_go(now) && !facts.terminating {
                let (tolerations, bound) = (entry.tolerations.clone(), entry.bound);
                leave.push(Leaving { pod: pod_target(pod, entry), due, tolerations, bound });
            } else {
                let actions = self.evictions.pod_seen(now, node, &facts);
                self.leaving.remove(&uid);
                self.pod_actions(actions);
            }
        }
        if leave.is_empty() {
            return None;
        }
        self.evicting.insert(node, pods.collect());
        Some(Write::Evict { target, pods: leave, known: self.evictions.known(node) })
    }
}

/// Whether one "lost" taint replaces the other.
fn is_swap(patch: &TaintPatch) -> bool {
    patch.remove.iter().any(|(_, effect)| *effect == TaintEffect::NoExecute)
}
