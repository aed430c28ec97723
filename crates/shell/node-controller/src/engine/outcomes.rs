//! Passes outcomes of writes back to the decisions.
//!
//! Rule: an outcome about a node that was created again since is dropped. A failure is passed on
//! only after a pause that fits it, so that retries do not overload a server; while the API server
//! is failing nothing is sent at all.

use std::time::Duration;

use node_health::cidr::WriteFate;
use node_health::health::NodeEvent;
use node_health::lifecycle::{Outcome, Sight as Seen, WriteKind};
use node_health::{Moment, NodeId};
use ports::cluster_objects::Node;
use tokio::task::JoinError;
use tracing::{error, warn};

use super::Engine;
use super::queue::Pending;
use crate::gate::Failure;
use crate::writes::probe::Probed;
use crate::writes::{Done, PodFate, PodTarget, Target, cloud};

/// Retry pause of a refused write: the cause is likely to persist.
const REFUSED: Duration = Duration::from_secs(30);
/// Retry pause of any other failure.
const FAILED: Duration = Duration::from_secs(1);
/// First pause of all requests while the API server is failing; it grows.
const FIRST_HOLD: Duration = Duration::from_millis(100);
const LONGEST_HOLD: Duration = Duration::from_secs(5);

fn pause(failure: &Failure) -> Duration {
    match failure {
        failure if failure.is_conflict() || failure.is_gone() => Duration::ZERO,
        failure if failure.is_hopeless() => REFUSED,
        _ => FAILED,
    }
}

impl Engine {
    pub(super) fn joined(&mut self, joined: Result<Done, JoinError>) {
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

    fn done(&mut self, done: Done) {
        let now = self.now();
        self.published.changed();
        let failure = match &done {
            Done::Node { outcome, .. } => outcome.as_ref().err(),
            Done::Range { outcome, .. } => outcome.as_ref().err(),
            Done::Touched { outcome, .. } => outcome.as_ref().err(),
            Done::Cleared { outcome, .. } => outcome.as_ref().err(),
            Done::Marked { failures, .. } => failures.first().map(|(_, failure)| failure),
            Done::Probed(probed) => probed.failure.as_ref(),
            Done::Evicted { fates, .. } => fates.iter().find_map(|(_, fate)| match fate {
                PodFate::Failed(failure) => Some(failure),
                PodFate::Gone | PodFate::Stays => None,
            }),
            Done::CloudSaid { outcome: Err(cloud::Trouble::Api(failure)), .. }
            | Done::CloudFollowed { outcome: Err(cloud::Trouble::Api(failure)), .. } => {
                Some(failure)
            }
            Done::Alive { .. }
            | Done::LookedFor { .. }
            | Done::CloudSaid { .. }
            | Done::CloudFollowed { .. } => None,
        };
        self.judge_server(now, failure.cloned().as_ref());
        match &done {
            Done::Node { target, .. }
            | Done::Alive { target, .. }
            | Done::Range { target, .. }
            | Done::Touched { target, .. }
            | Done::CloudFollowed { target, .. } => self.queue.free(target.node),
            _ => {}
        }
        let done = self.set_refused_aside(now, done);
        let wait = match &done {
            Done::Node { outcome: Err(failure), .. } => pause(failure),
            // A node whose pod CIDRs a read has shown needs no pause: there is nothing to retry.
            Done::Range { outcome: Err(failure), fresh, .. } if !failure.is_refusal() => {
                let there = fresh.as_ref().is_some_and(|node| !node.spec.pod_cidrs.is_empty());
                if there { Duration::ZERO } else { pause(failure) }
            }
            // Also after a conflict: it was decided on our view of the pod, which has to catch up.
            Done::Marked { failures, .. } if !failures.is_empty() => FAILED,
            _ => Duration::ZERO,
        };
        if wait.is_zero() {
            self.conclude(now, done);
        } else {
            self.put_off(now.after(wait), done);
        }
    }

    fn put_off(&mut self, until: Moment, done: Done) {
        self.laters += 1;
        self.later.insert((until, self.laters), done);
    }

    /// Pods whose mark was refused are retried separately, after a pause that does not delay the
    /// other pods of their node.
    fn set_refused_aside(&mut self, now: Moment, done: Done) -> Done {
        let (target, failures, whole) = match done {
            Done::Marked { target, failures, whole } => (target, failures, whole),
            other => return other,
        };
        let (mut refused, failures): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(_, failure)| failure.is_hopeless());
        for (pod, failure) in &refused {
            warn!(pod = pod.full_name(), err = %failure, "A pod's mark as not ready was refused");
        }
        // One in the retry queue already keeps its time.
        refused.retain(|(pod, _)| self.refused_marks.insert(pod.uid.clone()));
        if !refused.is_empty() {
            let alone = Done::Marked { target: target.clone(), failures: refused, whole: false };
            self.put_off(now.after(REFUSED), alone);
        }
        Done::Marked { target, failures, whole }
    }

    fn judge_server(&mut self, now: Moment, failure: Option<&Failure>) {
        match failure.map(|failure| (failure, failure.trouble())) {
            Some((failure, Some(asked_for))) => {
                let hold = FIRST_HOLD.saturating_mul(1 << self.troubles.min(8)).min(LONGEST_HOLD);
                self.troubles = self.troubles.saturating_add(1);
                self.hold_until = self.hold_until.max(now.after(hold.max(asked_for)));
                warn!(err = %failure, "The API server is failing; pausing all requests");
            }
            Some((_, None)) => {}
            None => self.troubles = 0,
        }
    }

    pub(super) fn deliver_later(&mut self, now: Moment) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let done = entry.remove();
            self.conclude(now, done);
        }
    }

    fn conclude(&mut self, now: Moment, done: Done) {
        match done {
            Done::Node { target, kind, outcome, fresh, gave_up } => {
                if gave_up && self.is_current(&target) {
                    self.count_given_up(target.node);
                }
                self.node_written(now, &target, (kind, outcome), fresh);
            }
            Done::Alive { target, renewed } => {
                if self.is_current(&target) {
                    self.lifecycle.lease_read(now, target.node, renewed);
                    // Nothing was written: the live read showed a renewal. "Failed" makes the
                    // decisions start over after their retry pause.
                    let kind = WriteKind::Conditions;
                    let actions = self.lifecycle.written(now, target.node, kind, Outcome::Failed);
                    self.act(actions);
                }
            }
            Done::Range { target, outcome, fresh } => {
                self.range_written(&target, outcome, fresh);
            }
            Done::Touched { target, outcome, fresh } => {
                self.touched(now, &target, outcome, fresh);
            }
            Done::Marked { target, failures, whole } => {
                self.marked(now, &target, failures, whole);
            }
            Done::Evicted { target, fates, fresh } => self.evicted(now, &target, fates, fresh),
            Done::Cleared { pod, why, outcome } => self.cleared(&pod, why, outcome),
            Done::LookedFor { answers } => self.looked_for(now, answers),
            Done::Probed(probed) => self.probed(now, probed),
            Done::CloudSaid { target, task, outcome } => self.cloud_said(&target, task, outcome),
            Done::CloudFollowed { target, task, outcome } => {
                self.cloud_followed(&target, task, outcome);
            }
        }
    }

    fn count_given_up(&self, node: NodeId) {
        let zone = self.lifecycle.zone_of(node).and_then(|id| self.lifecycle.zones().get(id));
        if let Some(zone) = zone {
            self.shared.counters.node_evicted(zone.key().as_str());
        }
    }

    fn node_written(
        &mut self,
        now: Moment,
        target: &Target,
        (kind, outcome): (WriteKind, Result<u64, Failure>),
        fresh: Option<Box<Node>>,
    ) {
        if !self.is_current(target) {
            return;
        }
        let node = target.node;
        let outcome = match outcome {
            Ok(version) => Outcome::Written { version },
            Err(failure) => {
                if !failure.is_conflict() {
                    warn!(node = &*target.name, err = %failure, "Failed to write to a node");
                }
                Outcome::Failed
            }
        };
        if let Some(fresh) = fresh {
            self.see_node(&fresh, Seen::Event);
        }
        // A version that is not a number cannot be applied here; the watch will bring the node.
        let odd = self.names.known(node).is_some_and(|known| known.odd_version.is_some());
        let outcome = if odd { Outcome::Failed } else { outcome };
        let actions = self.lifecycle.written(now, node, kind, outcome);
        self.act(actions);
        self.weigh_node(now, node);
        self.changed = true;
    }

    fn range_written(
        &mut self,
        target: &Target,
        outcome: Result<(), Failure>,
        fresh: Option<Box<Node>>,
    ) {
        if !self.is_current(target) {
            return;
        }
        let node = target.node;
        let Some(ranges) = &mut self.ranges else { return };
        match outcome {
            Ok(()) => {
                ranges.written(node, WriteFate::Written);
                for pool in ranges.pools() {
                    self.shared.counters.range_allocated(pool.cluster());
                }
            }
            Err(failure) if failure.is_refusal() => {
                warn!(node = &*target.name, err = %failure, "A node's pod range was refused");
                ranges.written(node, WriteFate::Refused);
                self.tell_node(node, NodeEvent::CidrAssignmentFailed);
                self.without_range.insert(node);
            }
            Err(failure) => {
                if !failure.is_conflict() {
                    warn!(node = &*target.name, err = %failure, "Failed to write a pod range");
                }
                ranges.written(node, WriteFate::Unknown);
                if let Some(fresh) = fresh {
                    self.see_node(&fresh, Seen::Event);
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
        now: Moment,
        target: &Target,
        failures: Vec<(PodTarget, Failure)>,
        whole: bool,
    ) {
        let mut again = false;
        for (pod, failure) in failures {
            // Already logged when it was refused, and its pause is over now.
            if failure.is_hopeless() {
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
        now: Moment,
        target: &Target,
        fates: Vec<(PodTarget, PodFate)>,
        fresh: Option<Option<Box<Node>>>,
    ) {
        for (pod, fate) in &fates {
            // Its deletion will be observed; observations before that are stale.
            if !matches!(fate, PodFate::Gone) {
                self.leaving.remove(&pod.uid);
            }
        }
        let was_current = self.is_current(target);
        let mut weighs = !was_current;
        match fresh {
            // Ignore the read of a node that is gone or was replaced. A new node of that name is
            // left to the watch, which delivers it in order; then its pods are evaluated.
            Some(Some(node)) if was_current && target.is(&node) => {
                self.see_node(&node, Seen::Event);
                weighs = true;
            }
            Some(None) if was_current => self.lose_node(target.node),
            _ => {}
        }
        // Its pods were taken off the schedule to be evicted; those that stay are evaluated again,
        // also if the node was created again meanwhile.
        let node = self.names.find(&target.name).filter(|_| weighs);
        if let Some(node) = node.filter(|node| self.names.known(*node).is_some()) {
            self.weigh_node(now, node);
        }
        for (pod, fate) in fates {
            let PodFate::Failed(failure) = fate else { continue };
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

    fn probed(&mut self, now: Moment, probed: Probed) {
        let mut news = false;
        for (target, renewed) in probed.found {
            if self.is_current(&target) {
                news |= self.lifecycle.renewed(target.node) != Some(renewed);
                self.lifecycle.lease_read(now, target.node, renewed);
            }
        }
        if let Some(failure) = &probed.failure {
            warn!(err = %failure, "Failed to read leases");
        }
        if self.sight.answered(probed.sent, probed.failure.is_none(), news) {
            self.reopen_leases = true;
        }
    }

    /// Handles of all nodes that exist now.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.names.nodes().collect()
    }
}
