//! Pod garbage collection passes, over the pods that its rules may concern.

use std::collections::BTreeMap;

use node_health::pod_cleanup::{CleanupNode, CleanupPod, CleanupReason, ForceDelete, Phase};
use node_health::{ControllerTime, NodeId, PodId, TaintKey};
use tracing::warn;

use super::Engine;
use super::dispatch::pod_target;
use super::queue::Pending;
use crate::api_gate::RequestError;
use crate::uid::Uid;
use crate::writes::pods::PodClearing;
use crate::writes::{PodTarget, Write, perform};

impl Engine {
    /// Updates whether garbage collection may concern a pod.
    pub(super) fn update_cleanup_interest(&mut self, pod: PodId) {
        let Some(entry) = self.pods.get(pod) else { return };
        let ended = !matches!(entry.phase, Phase::Pending | Phase::Running | Phase::Unknown);
        let lost = entry.node.is_some_and(|node| self.names.known(node).is_none());
        let interest = ended || lost || entry.terminating;
        self.pods.set_interest(pod, interest);
    }

    pub(super) fn update_cleanup_interest_of_node(&mut self, node: NodeId) {
        for pod in self.names.pods(node).to_vec() {
            self.update_cleanup_interest(pod);
        }
    }

    pub(super) fn cleanup_wake(&self) -> Option<ControllerTime> {
        let on = self.shared.checked.config.enabled.pod_cleanup;
        (on && !self.is_looking_up_nodes && self.pods.of_interest().next().is_some())
            .then_some(self.next_cleanup)
    }

    pub(super) fn clean_up(&mut self, now: ControllerTime) {
        if self.pods.of_interest().next().is_none() {
            self.cleanup.clear_missing_nodes();
        }
        if self.cleanup_wake().is_none_or(|when| when > now) {
            return;
        }
        self.next_cleanup = now.after(self.shared.checked.config.pod_cleanup.period);
        let names = self.clean_up_pass(now);
        if !names.is_empty() {
            self.is_looking_up_nodes = true;
            self.writes.spawn(perform(self.api_gate.clone(), Write::LookUpNodes { names }));
        }
    }

    /// Makes one pass; returns the nodes to look up.
    fn clean_up_pass(&mut self, now: ControllerTime) -> Vec<Box<str>> {
        let mut nodes = BTreeMap::new();
        let mut pods = Vec::new();
        for (pod, entry) in self.pods.of_interest() {
            let name = entry.node.and_then(|node| self.names.name(node));
            if let (Some(node), Some(name)) = (entry.node, name)
                && let Some(facts) = self.lifecycle.facts(node)
            {
                nodes.entry(&**name).or_insert_with(|| CleanupNode {
                    ready: facts.conditions.is_ready(),
                    out_of_service: facts
                        .taints
                        .iter()
                        .any(|taint| taint.key == TaintKey::OutOfService),
                });
            }
            // A pod being deleted is counted, as in upstream's pass, but not deleted again.
            pods.push(CleanupPod {
                pod,
                name: &entry.name,
                node: name.map_or("", |name| name),
                phase: entry.phase,
                evicted: entry.evicted,
                terminating: entry.terminating,
                created: entry.created,
            });
        }
        let pass = self.cleanup.pass(now, &pods, &nodes);
        for delete in pass.deletes {
            let Some(entry) = self.pods.get(delete.pod) else { continue };
            let uid = entry.uid.clone();
            if self.clearing.insert(uid.clone()) {
                self.queue.push(Pending::Clear(delete, uid));
            }
        }
        pass.nodes_to_verify
    }

    pub(super) fn prepare_clearing(
        &mut self,
        delete: &ForceDelete<PodId>,
        uid: &Uid,
    ) -> Option<Write> {
        let Some(entry) = self.pods.get(delete.pod).filter(|entry| entry.uid == *uid) else {
            self.clearing.remove(uid);
            return None;
        };
        // An orphan's node may have come back while the deletion was queued.
        let found = entry.node.is_some_and(|node| self.names.known(node).is_some());
        if delete.why == CleanupReason::Orphaned && found {
            self.clearing.remove(uid);
            return None;
        }
        let node = entry.node.and_then(|node| self.names.name(node));
        Some(Write::Clear {
            pod: pod_target(delete.pod, entry),
            clearing: PodClearing {
                why: delete.why,
                node: node.map(|name| name.as_ref().into()),
                mark_failed: delete.fail_first,
                add_condition: delete.condition.is_some(),
            },
        })
    }

    pub(super) fn cleared(
        &mut self,
        pod: &PodTarget,
        why: CleanupReason,
        outcome: Result<bool, RequestError>,
    ) {
        self.clearing.remove(&pod.uid);
        match outcome {
            // The reason no longer applied, so nothing was deleted.
            Ok(false) => {}
            // It changed between our read and our write; the next pass reads again.
            Err(failure) if failure.is_conflict() => {}
            Ok(true) => self.shared.counters.pod_cleared(&pod.namespace, why.label(), true),
            Err(failure) => {
                self.shared.counters.pod_cleared(&pod.namespace, why.label(), false);
                warn!(pod = pod.full_name(), err = %failure, "Failed to delete a pod in garbage collection");
            }
        }
    }

    /// Handles the result of node lookups; a pass follows at once.
    pub(super) fn on_nodes_looked_up(
        &mut self,
        now: ControllerTime,
        answers: Vec<(Box<str>, Result<bool, RequestError>)>,
    ) {
        self.is_looking_up_nodes = false;
        for (name, answer) in answers {
            match answer {
                Ok(false) => self.cleanup.confirm_node_absent(&name),
                Ok(true) => self.cleanup.confirm_node_present(now, &name),
                Err(failure) => {
                    warn!(node = &*name, err = %failure, "Failed to look up a node");
                    self.cleanup.confirm_node_present(now, &name);
                }
            }
        }
        // Nodes still to be looked up are handled in the next pass.
        let _ = self.clean_up_pass(now);
    }
}
