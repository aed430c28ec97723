//! Scheduling of cloud queries.
//!
//! Rule: one query of a kind per node at a time. New nodes are initialized when they are first
//! observed, and in every period again until that succeeds. Queries have their own slots, whose
//! number does not depend on how long the cloud takes.

use std::collections::VecDeque;
use std::time::Duration;

use node_health::cloud::must_ask;
use node_health::{ConditionKind, Moment, NodeId, TaintKey};
use tracing::warn;

use super::Engine;
use super::queue::Pending;
use crate::writes::cloud::{Answer, Outcome, Task, Trouble};
use crate::writes::{Target, Write, perform};

/// How many queries are in flight at once.
const CLOUD_AT_ONCE: usize = 8;
/// An answer that was queued longer than this is queried again.
const ANSWER_LASTS: Duration = Duration::from_secs(30);

impl Engine {
    pub(super) fn cloud_wake(&self) -> Option<Moment> {
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
    pub(super) fn see_for_cloud(&mut self, node: NodeId) {
        let on = self.shared.cloud.is_some() && self.shared.checked.config.enabled.cloud_node;
        if on && self.is_undescribed(node) {
            self.ask_cloud_about(node, Task::Describe);
        }
    }

    fn ask_cloud_about(&mut self, node: NodeId, task: Task) {
        if self.asking_cloud.insert((node, task)) {
            let later = usize::from(task == Task::Addresses);
            if let Some(questions) = self.cloud_questions.get_mut(later) {
                questions.push_back((node, task));
            }
        }
    }

    /// Drops all queries about a node that is gone.
    pub(super) fn forget_cloud(&mut self, node: NodeId) {
        if self.shared.cloud.is_none() {
            return;
        }
        self.asking_cloud.retain(|(about, _)| *about != node);
        for questions in &mut self.cloud_questions {
            questions.retain(|(about, _)| *about != node);
        }
    }

    /// Whether there are a queued query and a free slot.
    pub(super) fn cloud_has_room(&self) -> bool {
        self.cloud_asks.len() < CLOUD_AT_ONCE
            && self.cloud_questions.iter().any(|questions| !questions.is_empty())
    }

    /// Sends queued queries, up to the limit. A hung cloud blocks only these slots and no write.
    pub(super) fn start_questions(&mut self, now: Moment) {
        while self.cloud_has_room() && now >= self.hold_until {
            let next = self.cloud_questions.iter_mut().find_map(VecDeque::pop_front);
            let Some((node, task)) = next else { return };
            match self.target(node) {
                Some(target) => {
                    let question = Write::AskCloud { target, task };
                    self.cloud_asks.spawn(perform(self.gate.clone(), question));
                }
                None => {
                    self.asking_cloud.remove(&(node, task));
                }
            }
        }
    }

    /// Queues what follows from an answer; one that is too old by now is queried again.
    pub(super) fn prepare_following(
        &mut self,
        now: Moment,
        node: NodeId,
        answer: Box<Answer>,
    ) -> Option<Write> {
        let target = self.target(node);
        if let Some(target) = target.filter(|_| now.since(answer.asked) <= ANSWER_LASTS) {
            return Some(Write::FollowCloud { target, answer });
        }
        if self.asking_cloud.remove(&(node, answer.task)) && self.names.known(node).is_some() {
            self.ask_cloud_about(node, answer.task);
        }
        None
    }

    pub(super) fn ask_cloud(&mut self, now: Moment) {
        if self.cloud_wake().is_none_or(|when| when > now) {
            return;
        }
        let enabled = self.shared.checked.config.enabled;
        if self.next_cloud <= now {
            self.next_cloud = now.after(self.shared.checked.config.health.monitor_period);
            for node in self.nodes() {
                if enabled.cloud_node && self.is_undescribed(node) {
                    self.ask_cloud_about(node, Task::Describe);
                }
                // Also uninitialized nodes: one may never have been an instance of the cloud.
                if enabled.cloud_node_lifecycle && self.fate_is_open(node) {
                    self.ask_cloud_about(node, Task::Fate);
                }
            }
        }
        if enabled.cloud_node && self.next_addresses <= now {
            self.next_addresses = now.after(self.shared.checked.config.cloud_update_period);
            for node in self.nodes() {
                self.ask_cloud_about(node, Task::Addresses);
            }
        }
    }

    /// Not ready, or ready with the shutdown taint.
    fn fate_is_open(&self, node: NodeId) -> bool {
        self.lifecycle.facts(node).is_some_and(|facts| {
            let ready = facts.conditions.status(ConditionKind::Ready);
            let tainted = facts.taints.iter().any(|it| it.key == TaintKey::CloudShutdown);
            must_ask(ready) || tainted
        })
    }

    pub(super) fn cloud_said(
        &mut self,
        target: &Target,
        task: Task,
        outcome: Result<Option<Box<Answer>>, Trouble>,
    ) {
        if !self.is_current(target) {
            return;
        }
        match outcome {
            Ok(Some(answer)) => self.queue.push(Pending::Cloud(target.node, answer)),
            Ok(None) => {
                self.asking_cloud.remove(&(target.node, task));
            }
            Err(trouble) => self.cloud_failed(target, task, &trouble),
        }
    }

    pub(super) fn cloud_followed(
        &mut self,
        target: &Target,
        task: Task,
        outcome: Result<Outcome, Trouble>,
    ) {
        if !self.is_current(target) {
            return;
        }
        self.asking_cloud.remove(&(target.node, task));
        match outcome {
            Ok(Outcome::Settled) => {}
            Ok(Outcome::Changed) => self.changed = true,
            // A conflicting write by another client: query once more.
            Err(Trouble::Api(failure)) if failure.is_conflict() => {
                self.ask_cloud_about(target.node, task);
            }
            Err(trouble) => self.cloud_failed(target, task, &trouble),
        }
    }

    fn cloud_failed(&mut self, target: &Target, task: Task, trouble: &Trouble) {
        self.asking_cloud.remove(&(target.node, task));
        warn!(node = &*target.name, ?task, err = %trouble, "Failed to query the cloud or to apply its answer");
    }
}
