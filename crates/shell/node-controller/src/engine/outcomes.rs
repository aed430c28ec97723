//! Passes outcomes of writes back to the decisions.
//!
//! Rule: an outcome about a node that was created again since is dropped. A failure is passed on
//! only after a pause that fits it, so that retries do not overload a server; while the API server
//! is failing nothing is sent at all.

use std::time::Duration;

use node_health::cidr::AssignmentOutcome;
use node_health::health::NodeHealthEvent;
use node_health::lifecycle::{ObservationSource as Seen, WriteKind, WriteOutcome};
use node_health::{ControllerTime, NodeId};
use ports::cluster_objects::Node;
use tokio::task::JoinError;
use tracing::{error, warn};

use super::Engine;
use super::queue::Pending;
use crate::api_gate::RequestError;
use crate::writes::probe::Probed;
use crate::writes::{EvictionResult, NodeTarget, PodTarget, WriteResult, cloud};

/// Retry pause of a refused write: the cause is likely to persist.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Retry pause of any other failure.
const FAILED_RETRY_DELAY: Duration = Duration::from_secs(1);
/// First pause of all requests while the API server is failing; it grows.
const MIN_HOLD: Duration = Duration::from_millis(100);
const MAX_HOLD: Duration = Duration::from_secs(5);

fn pause(failure: &RequestError) -> Duration {
    match failure {
        failure if failure.is_conflict() || failure.is_gone() => Duration::ZERO,
        failure if failure.is_permanent() => REFUSED_RETRY_DELAY,
        _ => FAILED_RETRY_DELAY,
    }
}

/// The outcome of a write to a node.
struct NodeWriteResult {
    kind: WriteKind,
    /// The new version.
    outcome: Result<u64, RequestError>,
    /// The node as read again, if it was.
    fresh: Option<Box<Node>>,
}

impl Engine {
    pub(super) fn joined(&mut self, joined: Result<WriteResult, JoinError>) {
        match joined {
            Ok(done) => self.done(done),
            // The task's state is lost with it; a restart recovers everything.
            Err(problem) if problem.is_panic() => {
                error!(err = %problem, "A write panicked");
                std::panic::resume_unwind(problem.into_panic());
            }
            Err(_) => {}
        }
    }

    fn done(&mut self, done: WriteResult) {
        let now = self.now();
        self.published.changed();
        let failure = match &done {
            WriteResult::Node { outcome, .. } => outcome.as_ref().err(),
            WriteResult::Range { outcome, .. } => outcome.as_ref().err(),
            WriteResult::Touched { outcome, .. } => outcome.as_ref().err(),
            WriteResult::Cleared { outcome, .. } => outcome.as_ref().err(),
            WriteResult::Marked { failures, .. } => failures.first().map(|(_, failure)| failure),
            WriteResult::Probed(on_probed) => on_probed.failure.as_ref(),
            WriteResult::Evicted { results, .. } => {
                results.iter().find_map(|(_, result)| match result {
                    EvictionResult::Failed(failure) => Some(failure),
                    EvictionResult::Gone | EvictionResult::Stays => None,
                })
            }
            WriteResult::CloudAnswered {
                outcome: Err(cloud::CloudWriteError::Api(failure)),
                ..
            }
            | WriteResult::CloudApplied {
                outcome: Err(cloud::CloudWriteError::Api(failure)),
                ..
            } => Some(failure),
            WriteResult::Alive { .. }
            | WriteResult::NodesLookedUp { .. }
            | WriteResult::CloudAnswered { .. }
            | WriteResult::CloudApplied { .. } => None,
        };
        self.update_server_hold(now, failure.cloned().as_ref());
        match &done {
            WriteResult::Node { target, .. }
            | WriteResult::Alive { target, .. }
            | WriteResult::Range { target, .. }
            | WriteResult::Touched { target, .. }
            | WriteResult::CloudApplied { target, .. } => self.queue.free(target.node),
            _ => {}
        }
        let done = self.defer_refused_marks(now, done);
        let wait = match &done {
            WriteResult::Node { outcome: Err(failure), .. } => pause(failure),
            // A node whose pod CIDRs a read has shown needs no pause: there is nothing to retry.
            WriteResult::Range { outcome: Err(failure), fresh, .. } if !failure.is_rejection() => {
                let there = fresh.as_ref().is_some_and(|node| !node.spec.pod_cidrs.is_empty());
                if there { Duration::ZERO } else { pause(failure) }
            }
            // Also after a conflict: it was decided on our view of the pod, which has to catch up.
            WriteResult::Marked { failures, .. } if !failures.is_empty() => FAILED_RETRY_DELAY,
            _ => Duration::ZERO,
        };
        if wait.is_zero() {
            self.conclude(now, done);
        } else {
            self.defer(now.after(wait), done);
        }
    }

    fn defer(&mut self, until: ControllerTime, done: WriteResult) {
        self.deferred_count += 1;
        self.deferred.insert((until, self.deferred_count), done);
    }

    /// Pods whose mark was refused are retried separately, after a pause that does not delay the
    /// other pods of their node.
    fn defer_refused_marks(&mut self, now: ControllerTime, done: WriteResult) -> WriteResult {
        let (target, failures, whole) = match done {
            WriteResult::Marked { target, failures, whole } => (target, failures, whole),
            other => return other,
        };
        let (mut refused, failures): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(_, failure)| failure.is_permanent());
        for (pod, failure) in &refused {
            warn!(pod = pod.full_name(), err = %failure, "A pod's mark as not ready was refused");
        }
        // One in the retry queue already keeps its time.
        refused.retain(|(pod, _)| self.refused_marks.insert(pod.uid.clone()));
        if !refused.is_empty() {
            let alone =
                WriteResult::Marked { target: target.clone(), failures: refused, whole: false };
            self.defer(now.after(REFUSED_RETRY_DELAY), alone);
        }
        WriteResult::Marked { target, failures, whole }
    }

    fn update_server_hold(&mut self, now: ControllerTime, failure: Option<&RequestError>) {
        match failure.map(|failure| (failure, failure.server_back_off())) {
            Some((failure, Some(asked_for))) => {
                let hold =
                    MIN_HOLD.saturating_mul(1 << self.failures_in_a_row.min(8)).min(MAX_HOLD);
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                self.hold_until = self.hold_until.max(now.after(hold.max(asked_for)));
                warn!(err = %failure, "The API server is failing; pausing all requests");
            }
            Some((_, None)) => {}
            None => self.failures_in_a_row = 0,
        }
    }

    pub(super) fn deliver_deferred(&mut self, now: ControllerTime) {
        while let Some(entry) = self.deferred.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let done = entry.remove();
            self.conclude(now, done);
        }
    }

    fn conclude(&mut self, now: ControllerTime, done: WriteResult) {
        match done {
            WriteResult::Node { target, kind, outcome, fresh, was_eviction } => {
                if was_eviction && self.is_current(&target) {
                    self.count_node_eviction(target.node);
                }
                self.node_written(now, &target, NodeWriteResult { kind, outcome, fresh });
            }
            WriteResult::Alive { target, renewed } => {
                if self.is_current(&target) {
                    self.lifecycle.observe_listed_lease(now, target.node, renewed);
                    // Nothing was written: the live read showed a renewal. "Failed" makes the
                    // decisions start over after their retry pause.
                    let kind = WriteKind::Conditions;
                    let actions =
                        self.lifecycle.written(now, target.node, kind, WriteOutcome::Failed);
                    self.apply_actions(actions);
                }
            }
            WriteResult::Range { target, outcome, fresh } => {
                self.range_written(&target, outcome, fresh);
            }
            WriteResult::Touched { target, outcome, fresh } => {
                self.touched(now, &target, outcome, fresh);
            }
            WriteResult::Marked { target, failures, whole } => {
                self.marked(now, &target, failures, whole);
            }
            WriteResult::Evicted { target, results, fresh } => {
                self.evicted(now, &target, results, fresh);
            }
            WriteResult::Cleared { pod, why, outcome } => self.cleared(&pod, why, outcome),
            WriteResult::NodesLookedUp { answers } => self.on_nodes_looked_up(now, answers),
            WriteResult::Probed(on_probed) => self.on_probed(now, on_probed),
            WriteResult::CloudAnswered { target, task, outcome } => {
                self.on_cloud_answer(&target, task, outcome);
            }
            WriteResult::CloudApplied { target, task, outcome } => {
                self.on_cloud_applied(&target, task, outcome);
            }
        }
    }

    fn count_node_eviction(&self, node: NodeId) {
        let zone = self.lifecycle.zone_of(node).and_then(|id| self.lifecycle.zones().get(id));
        if let Some(zone) = zone {
            self.shared.counters.node_evicted(zone.key().as_str());
        }
    }

    fn node_written(&mut self, now: ControllerTime, target: &NodeTarget, written: NodeWriteResult) {
        if !self.is_current(target) {
            return;
        }
        let NodeWriteResult { kind, outcome, fresh } = written;
        let node = target.node;
        let outcome = match outcome {
            Ok(version) => WriteOutcome::Written { version },
            Err(failure) => {
                if !failure.is_conflict() {
                    warn!(node = &*target.name, err = %failure, "Failed to write to a node");
                }
                WriteOutcome::Failed
            }
        };
        if let Some(fresh) = fresh {
            self.upsert_node(&fresh, Seen::Event);
        }
        // A version that is not a number cannot be applied here; the watch will bring the node.
        let odd = self.names.known(node).is_some_and(|known| known.odd_version.is_some());
        let outcome = if odd { WriteOutcome::Failed } else { outcome };
        let actions = self.lifecycle.written(now, node, kind, outcome);
        self.apply_actions(actions);
        self.evaluate_node_taints(now, node);
        self.changed = true;
    }

    fn range_written(
        &mut self,
        target: &NodeTarget,
        outcome: Result<(), RequestError>,
        fresh: Option<Box<Node>>,
    ) {
        if !self.is_current(target) {
            return;
        }
        let node = target.node;
        let Some(ranges) = &mut self.ranges else { return };
        match outcome {
            Ok(()) => {
                ranges.written(node, AssignmentOutcome::Written);
                for pool in ranges.pools() {
                    self.shared.counters.range_allocated(pool.cluster());
                }
            }
            Err(failure) if failure.is_rejection() => {
                warn!(node = &*target.name, err = %failure, "A node's pod range was refused");
                ranges.written(node, AssignmentOutcome::Refused);
                self.record_node_event(node, NodeHealthEvent::CidrAssignmentFailed);
                self.without_range.insert(node);
            }
            Err(failure) => {
                if !failure.is_conflict() {
                    warn!(node = &*target.name, err = %failure, "Failed to write a pod range");
                }
                ranges.written(node, AssignmentOutcome::Unknown);
                if let Some(fresh) = fresh {
                    self.upsert_node(&fresh, Seen::Event);
                }
                // The same CIDRs are written again, unless the node has some by now.
                if !failure.is_gone() {
                    self.queue.push(Pending::Range(node));
                }
            }
        }
    }

    fn marked(
        &mut self,
        now: ControllerTime,
        target: &NodeTarget,
        failures: Vec<(PodTarget, RequestError)>,
        whole: bool,
    ) {
        let mut again = false;
        for (pod, failure) in failures {
            // Already logged when it was refused, and its pause is over now.
            if failure.is_permanent() {
                self.refused_marks.remove(&pod.uid);
            } else if !failure.is_conflict() {
                warn!(pod = pod.full_name(), err = %failure, "Failed to mark a pod as not ready");
            }
            again = true;
            if !whole {
                self.queue.push(Pending::MarkPod(pod.pod, pod.uid));
            }
        }
        if !whole || !self.is_current(target) {
            return;
        }
        if let Some(marking) = self.marking.get_mut(&target.node) {
            marking.failed |= again;
            if !marking.behind.is_empty() {
                self.queue.push(Pending::MarkMore(target.node));
                return;
            }
            again = marking.failed;
        }
        self.marking.remove(&target.node);
        self.lifecycle.pods_marked(now, target.node, !again);
    }

    fn evicted(
        &mut self,
        now: ControllerTime,
        target: &NodeTarget,
        results: Vec<(PodTarget, EvictionResult)>,
        fresh: Option<Option<Box<Node>>>,
    ) {
        for (pod, result) in &results {
            // Its deletion will be observed; observations before that are stale.
            if !matches!(result, EvictionResult::Gone) {
                self.leaving.remove(&pod.uid);
            }
        }
        let was_current = self.is_current(target);
        let mut weighs = !was_current;
        match fresh {
            // Ignore the read of a node that is gone or was replaced. A new node of that name is
            // left to the watch, which delivers it in order; then its pods are evaluated.
            Some(Some(node)) if was_current && target.is(&node) => {
                self.upsert_node(&node, Seen::Event);
                weighs = true;
            }
            Some(None) if was_current => self.drop_node(target.node),
            _ => {}
        }
        // Its pods were taken off the schedule to be evicted; those that stay are evaluated again,
        // also if the node was created again meanwhile.
        let node = self.names.find(&target.name).filter(|_| weighs);
        if let Some(node) = node.filter(|node| self.names.known(*node).is_some()) {
            self.evaluate_node_taints(now, node);
        }
        for (pod, result) in results {
            let EvictionResult::Failed(failure) = result else { continue };
            let known = self.pods.get(pod.pod).is_some_and(|entry| entry.uid == pod.uid);
            if known && self.is_current(target) {
                warn!(pod = pod.full_name(), err = %failure, "Failed to evict a pod");
                let again = now.after(pause(&failure).max(self.shared.checked.settings.retry));
                self.evictions.delete_failed(target.node, pod.pod, again);
            }
        }
        // Whether these are still to be evicted is checked when they are sent: the node may be
        // back.
        if let Some(behind) = self.evicting.remove(&target.node).filter(|it| !it.is_empty()) {
            self.queue.push(Pending::Evict(target.node, behind));
        }
    }

    fn on_probed(&mut self, now: ControllerTime, probed: Probed) {
        let mut found_changes = false;
        for (target, renewed) in probed.found {
            if self.is_current(&target) {
                found_changes |= self.lifecycle.renewed(target.node) != Some(renewed);
                self.lifecycle.observe_listed_lease(now, target.node, renewed);
            }
        }
        if let Some(failure) = &probed.failure {
            warn!(err = %failure, "Failed to read leases");
        }
        if self.lease_freshness.on_probe_answer(
            probed.sent,
            probed.failure.is_none(),
            found_changes,
        ) {
            self.reopen_leases = true;
        }
    }

    /// Handles of all nodes that exist now.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.names.nodes().collect()
    }
}
