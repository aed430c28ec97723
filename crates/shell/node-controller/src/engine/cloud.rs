//! Scheduling of cloud queries.
//!
//! Rule: one query of a kind per node at a time. New nodes are initialized when they are first
//! observed, and in every period again until that succeeds. Queries have their own slots, whose
//! number does not depend on how long the cloud takes.

use std::collections::VecDeque;
use std::time::Duration;

use node_health::cloud::needs_cloud_query;
use node_health::{ConditionKind, ControllerTime, NodeId, TaintKey};
use tracing::warn;

use super::Engine;
use super::queue::Pending;
use crate::writes::cloud::{CloudAnswer, CloudOutcome, CloudTask, CloudWriteError};
use crate::writes::{NodeTarget, Write, perform};

/// How many queries are in flight at once.
const MAX_CLOUD_REQUESTS: usize = 8;
/// An answer that was queued longer than this is queried again.
const ANSWER_TTL: Duration = Duration::from_secs(30);

impl Engine {
    pub(super) fn cloud_wake(&self) -> Option<ControllerTime> {
        self.shared.cloud.as_ref()?;
        let enabled = self.shared.checked.config.enabled;
        let periods = enabled.cloud_node_lifecycle || enabled.cloud_node;
        let addresses = enabled.cloud_node.then_some(self.next_addresses);
        periods.then_some(self.next_cloud).into_iter().chain(addresses).min()
    }

    fn is_undescribed(&self, node: NodeId) -> bool {
        let undescribed = |taint: &node_health::Taint| taint.key == TaintKey::CloudUninitialized;
        self.lifecycle.facts(node).is_some_and(|facts| facts.taints.iter().any(undescribed))
    }

    /// Queues the initialization of a newly observed, uninitialized node.
    pub(super) fn schedule_description(&mut self, node: NodeId) {
        let on = self.shared.cloud.is_some() && self.shared.checked.config.enabled.cloud_node;
        if on && self.is_undescribed(node) {
            self.ask_cloud_about(node, CloudTask::Describe);
        }
    }

    fn ask_cloud_about(&mut self, node: NodeId, task: CloudTask) {
        if self.cloud_in_flight.insert((node, task)) {
            let deferred = usize::from(task == CloudTask::Addresses);
            if let Some(questions) = self.cloud_queue.get_mut(deferred) {
                questions.push_back((node, task));
            }
        }
    }

    /// Drops all queries about a node that is gone.
    pub(super) fn forget_cloud(&mut self, node: NodeId) {
        if self.shared.cloud.is_none() {
            return;
        }
        self.cloud_in_flight.retain(|(about, _)| *about != node);
        for questions in &mut self.cloud_queue {
            questions.retain(|(about, _)| *about != node);
        }
    }

    /// Whether there are a queued query and a free slot.
    pub(super) fn cloud_has_room(&self) -> bool {
        self.cloud_tasks.len() < MAX_CLOUD_REQUESTS
            && self.cloud_queue.iter().any(|questions| !questions.is_empty())
    }

    /// Sends queued queries, up to the limit. A hung cloud blocks only these slots and no write.
    pub(super) fn start_cloud_requests(&mut self, now: ControllerTime) {
        while self.cloud_has_room() && now >= self.hold_until {
            let next = self.cloud_queue.iter_mut().find_map(VecDeque::pop_front);
            let Some((node, task)) = next else { return };
            match self.target(node) {
                Some(target) => {
                    let question = Write::QueryCloud { target, task };
                    self.cloud_tasks.spawn(perform(self.api_gate.clone(), question));
                }
                None => {
                    self.cloud_in_flight.remove(&(node, task));
                }
            }
        }
    }

    /// Queues what follows from an answer; one that is too old by now is queried again.
    pub(super) fn prepare_following(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        answer: Box<CloudAnswer>,
    ) -> Option<Write> {
        let target = self.target(node);
        if let Some(target) = target.filter(|_| now.since(answer.asked) <= ANSWER_TTL) {
            return Some(Write::ApplyCloudAnswer { target, answer });
        }
        if self.cloud_in_flight.remove(&(node, answer.task)) && self.names.known(node).is_some() {
            self.ask_cloud_about(node, answer.task);
        }
        None
    }

    pub(super) fn ask_cloud(&mut self, now: ControllerTime) {
        if self.cloud_wake().is_none_or(|when| when > now) {
            return;
        }
        let enabled = self.shared.checked.config.enabled;
        if self.next_cloud <= now {
            self.next_cloud = now.after(self.shared.checked.config.health.monitor_period);
            for node in self.nodes() {
                if enabled.cloud_node && self.is_undescribed(node) {
                    self.ask_cloud_about(node, CloudTask::Describe);
                }
                // Also uninitialized nodes: one may never have been an instance of the cloud.
                if enabled.cloud_node_lifecycle && self.must_check_existence(node) {
                    self.ask_cloud_about(node, CloudTask::CloudAction);
                }
            }
        }
        if enabled.cloud_node && self.next_addresses <= now {
            self.next_addresses = now.after(self.shared.checked.config.cloud_update_period);
            for node in self.nodes() {
                self.ask_cloud_about(node, CloudTask::Addresses);
            }
        }
    }

    /// Not ready, or ready with the shutdown taint.
    fn must_check_existence(&self, node: NodeId) -> bool {
        self.lifecycle.facts(node).is_some_and(|facts| {
            let ready = facts.conditions.status(ConditionKind::Ready);
            let tainted = facts.taints.iter().any(|it| it.key == TaintKey::CloudShutdown);
            needs_cloud_query(ready) || tainted
        })
    }

    pub(super) fn on_cloud_answer(
        &mut self,
        target: &NodeTarget,
        task: CloudTask,
        outcome: Result<Option<Box<CloudAnswer>>, CloudWriteError>,
    ) {
        if !self.is_current(target) {
            return;
        }
        match outcome {
            Ok(Some(answer)) => self.queue.push(Pending::Cloud(target.node, answer)),
            Ok(None) => {
                self.cloud_in_flight.remove(&(target.node, task));
            }
            Err(error) => self.cloud_failed(target, task, &error),
        }
    }

    pub(super) fn on_cloud_applied(
        &mut self,
        target: &NodeTarget,
        task: CloudTask,
        outcome: Result<CloudOutcome, CloudWriteError>,
    ) {
        if !self.is_current(target) {
            return;
        }
        self.cloud_in_flight.remove(&(target.node, task));
        match outcome {
            Ok(CloudOutcome::Settled) => {}
            Ok(CloudOutcome::Changed) => self.changed = true,
            // A conflicting write by another client: query once more.
            Err(CloudWriteError::Api(failure)) if failure.is_conflict() => {
                self.ask_cloud_about(target.node, task);
            }
            Err(error) => self.cloud_failed(target, task, &error),
        }
    }

    fn cloud_failed(&mut self, target: &NodeTarget, task: CloudTask, error: &CloudWriteError) {
        self.cloud_in_flight.remove(&(target.node, task));
        warn!(node = &*target.name, ?task, err = %error, "Failed to query the cloud or to apply its answer");
    }
}
