//! Carries decisions out as writes.
//!
//! Rule: a queued write is checked again before it is sent: the version it was decided on, the
//! node's silence, the leader's right to act. One that no longer applies is reported as failed, and
//! decided again.

use node_health::health::{NodeHealthEvent, PodReadiness, must_mark_not_ready};
use node_health::lifecycle::{LifecycleAction, WriteKind, WriteOutcome};
use node_health::no_execute::{EVENT_REASON, PodAction, cancel_message, decide_eviction};
use node_health::taints::TaintPatch;
use node_health::{ControllerTime, NodeId, PodId, RemoteTime};
use pod_model::TaintEffect;

use super::queue::{Due, Pending};
use super::{Engine, PodMarking};
use crate::events::{EventObject, EventText};
use crate::pods::CachedPod;
use crate::writes::pods::PODS_PER_WRITE;
use crate::writes::{Confirm, NodeTarget, PodTarget, PodToEvict, Write, perform};

const COMPONENT: &str = "node-controller";
/// The component of pod CIDR events. upstream: nodeipam/ipam/range_allocator.go
pub(super) const RANGE_COMPONENT: &str = "cidrAllocator";

pub(super) fn pod_target(pod: PodId, entry: &CachedPod) -> PodTarget {
    PodTarget {
        pod,
        uid: entry.uid.clone(),
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        version: entry.version,
    }
}

impl Engine {
    pub(super) fn target(&self, node: NodeId) -> Option<NodeTarget> {
        let known = self.names.known(node)?;
        let version = match &known.odd_version {
            Some(text) => text.to_string(),
            None => self.lifecycle.facts(node)?.version.to_string(),
        };
        Some(NodeTarget {
            node,
            incarnation: self.names.incarnation(node)?,
            name: self.names.name(node)?.clone(),
            uid: known.uid.clone(),
            version,
        })
    }

    /// Whether an outcome concerns the node that has this handle now.
    pub(super) fn is_current(&self, target: &NodeTarget) -> bool {
        self.names.incarnation(target.node) == Some(target.incarnation)
    }

    pub(super) fn record_node_event(&self, node: NodeId, event: NodeHealthEvent) {
        let (Some(name), Some(known)) = (self.names.name(node), self.names.known(node)) else {
            return;
        };
        if !self.shared.events.has_room() {
            return;
        }
        let about = EventObject::node(name, &known.uid.to_string());
        let message = event.message(name);
        let component = match event {
            NodeHealthEvent::CidrNotAvailable | NodeHealthEvent::CidrAssignmentFailed => {
                RANGE_COMPONENT
            }
            _ => COMPONENT,
        };
        self.shared.events.record(about, EventText::normal(component, event.reason(), message));
    }

    /// Takes the actions of the node decisions.
    pub(super) fn apply_actions(&mut self, actions: Vec<LifecycleAction>) {
        if !self.shared.checked.config.enabled.node_lifecycle {
            return;
        }
        for action in actions {
            match action {
                LifecycleAction::EmitEvent { node, event } => self.record_node_event(node, event),
                action => self.queue.push(Pending::LifecycleAction(action)),
            }
        }
    }

    pub(super) fn pod_actions(&mut self, actions: Vec<PodAction>) {
        for action in actions {
            // Deletions come only from the deadlines.
            let PodAction::EmitCancelled(pod) = action else { continue };
            let Some(entry) = self.pods.get(pod) else { continue };
            let about = EventObject::pod(&pod_target(pod, entry));
            let message = cancel_message(&entry.full_name());
            let event_text = EventText::normal("taint-eviction-controller", EVENT_REASON, message);
            self.shared.events.record(about, event_text);
        }
    }

    /// Queues the pods whose deadline has passed, node by node.
    pub(super) fn evict_due_pods(&mut self, now: ControllerTime) {
        if !self.shared.checked.config.enabled.taint_eviction {
            return;
        }
        let due = self.evictions.due(now, self.lifecycle.observation_clock());
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
            && must_mark_not_ready(PodReadiness { ready: entry.ready, node_ready })
    }

    pub(super) fn free_slots(&self) -> usize {
        self.shared.checked.config.writes.max_in_flight.max(1)
    }

    /// Sends queued writes, up to the limit.
    pub(super) fn start_writes(&mut self) {
        let now = self.now();
        self.start_cloud_requests(now);
        while self.writes.len() < self.free_slots() && now >= self.hold_until {
            let Some(pending) = self.queue.pop() else { return };
            let node = pending.writes_to();
            match self.prepare(now, pending) {
                Some(write) => {
                    self.writes.spawn(perform(self.api_gate.clone(), write));
                }
                None => {
                    if let Some(node) = node {
                        self.queue.free(node);
                    }
                }
            }
        }
    }

    fn prepare(&mut self, now: ControllerTime, pending: Pending) -> Option<Write> {
        match pending {
            Pending::LifecycleAction(action) => self.prepare_action(now, action),
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
            Pending::MarkMore(node) => self.mark_next_pods(now, node),
            Pending::Evict(node, pods) => self.prepare_eviction(now, node, pods),
            Pending::Clear(delete, uid) => self.prepare_clearing(&delete, &uid),
            Pending::Cloud(node, answer) => self.prepare_following(now, node, answer),
        }
    }

    fn prepare_action(&mut self, now: ControllerTime, action: LifecycleAction) -> Option<Write> {
        match action {
            LifecycleAction::EmitEvent { .. } => None,
            LifecycleAction::WriteConditions { node, version, writes } => {
                let holds = self.lifecycle.is_silent(node)
                    && self.lifecycle.observation_clock().may_act(now)
                    && self.is_version(node, version);
                if !holds {
                    return self.report_unsent(now, node, WriteKind::Conditions);
                }
                let renewed = self.lifecycle.renewed(node);
                let confirm = (!self.lease_freshness.is_lively(now)).then_some(Confirm { renewed });
                Some(Write::Conditions { target: self.target(node)?, writes, confirm })
            }
            LifecycleAction::PatchTaints { node, version, patch } => {
                let may = !patch.evicts() || self.lifecycle.observation_clock().may_act(now);
                let odd = self.names.known(node).is_some_and(|known| known.odd_taints);
                // It is decided again when all taints parse: until then there is nothing to retry.
                if odd {
                    self.unreadable.insert(node);
                    return None;
                }
                if !may || !self.is_version(node, version) {
                    return self.report_unsent(now, node, WriteKind::Taints);
                }
                let known = self.lifecycle.facts(node)?.taints.clone();
                let wanted = patch.apply(&known);
                let is_eviction = patch.evicts() && !is_swap(&patch);
                let target = self.target(node)?;
                // Before the write is sent: the watch must not show the taint with an unexpected
                // time.
                let wall = self.shared.clock.wall();
                self.lifecycle.record_taint_time(node, RemoteTime::from_nanos(wall.nanos()));
                Some(Write::Taints { target, wanted, known, wall, is_eviction })
            }
            LifecycleAction::SetLabels { node, version, labels } => {
                if !self.is_version(node, version) {
                    return self.report_unsent(now, node, WriteKind::Labels);
                }
                Some(Write::Labels { target: self.target(node)?, labels })
            }
            LifecycleAction::MarkPodsNotReady { node } => {
                let pods = self.names.pods(node).iter().copied();
                let pods = pods.filter_map(|pod| Some((pod, self.pods.get(pod)?.uid.clone())));
                let behind = pods.collect();
                // It became not ready again: the marks in flight finish first, then all pods are
                // marked again.
                if let Some(marking) = self.marking.get_mut(&node) {
                    marking.behind = behind;
                    return None;
                }
                self.marking.insert(node, PodMarking { behind, failed: false });
                self.mark_next_pods(now, node)
            }
        }
    }

    /// The next few pods to mark on a node that became not ready, if it still is and they are
    /// ready.
    fn mark_next_pods(&mut self, now: ControllerTime, node: NodeId) -> Option<Write> {
        let target = self.target(node)?;
        let mut marking = self.marking.remove(&node)?;
        let mut pods: Vec<PodTarget> = Vec::new();
        while pods.len() < PODS_PER_WRITE
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
    pub(super) fn report_unsent(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        kind: WriteKind,
    ) -> Option<Write> {
        let actions = self.lifecycle.written(now, node, kind, WriteOutcome::Failed);
        self.apply_actions(actions);
        None
    }

    /// The next few pods that the taints still evict; the rest are evaluated again when these are
    /// gone.
    fn prepare_eviction(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        pods: Vec<Due>,
    ) -> Option<Write> {
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
        let may_act = self.lifecycle.observation_clock().may_act(now);
        let mut leave = Vec::new();
        let mut pods = pods.into_iter();
        while leave.len() < PODS_PER_WRITE
            && let Some((pod, uid, due)) = pods.next()
        {
            let Some(entry) = self.pods.get(pod).filter(|entry| entry.uid == uid) else { continue };
            let facts = entry.facts(pod);
            let no_execute_taints = self.evictions.no_execute_taints(node);
            let verdict = decide_eviction(no_execute_taints, &facts, self.evictions.compares());
            if may_act && verdict.is_eviction_due(now) && !facts.terminating {
                let (tolerations, bound) = (entry.tolerations.clone(), entry.bound);
                leave.push(PodToEvict { pod: pod_target(pod, entry), due, tolerations, bound });
            } else {
                let actions = self.evictions.observe_pod(now, node, &facts);
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
