//! When the cloud is asked, about whom.
//!
//! Rule: about a node one question at a time. New nodes are described when they are seen, and again
//! with every period until that went through.

use node_health::cloud::must_ask;
use node_health::{ConditionKind, Moment, NodeId, TaintKey};
use tracing::warn;

use super::Engine;
use super::queue::Pending;
use crate::counters::ZoneNow;
use crate::writes::Target;
use crate::writes::cloud::{Outcome, Task, Trouble};

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

    /// A node was seen: one that nobody has described yet is, at once.
    pub(super) fn see_for_cloud(&mut self, node: NodeId) {
        let on = self.shared.cloud.is_some() && self.shared.checked.config.enabled.cloud_node;
        if on && self.is_undescribed(node) {
            self.ask_cloud_about(node, Task::Describe);
        }
    }

    fn ask_cloud_about(&mut self, node: NodeId, task: Task) {
        if self.asking_cloud.insert(node) {
            self.queue.push(Pending::Cloud(node, task));
        }
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
                } else if enabled.cloud_node_lifecycle && self.fate_is_open(node) {
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

    /// Not ready, or ready with the taint of one that was shut down.
    fn fate_is_open(&self, node: NodeId) -> bool {
        self.lifecycle.facts(node).is_some_and(|facts| {
            let ready = facts.conditions.status(ConditionKind::Ready);
            let tainted = facts.taints.iter().any(|it| it.key == TaintKey::CloudShutdown);
            must_ask(ready) || tainted
        })
    }

    pub(super) fn cloud_answered(
        &mut self,
        target: &Target,
        task: Task,
        outcome: Result<Outcome, Trouble>,
    ) {
        self.asking_cloud.remove(&target.node);
        match outcome {
            Ok(Outcome::Settled) => {}
            Ok(Outcome::Changed) => self.changed = true,
            Err(Trouble::Api(failure)) if failure.is_conflict() => {
                // Somebody wrote meanwhile: what follows from that is asked for once more.
                if self.is_current(target) {
                    self.ask_cloud_about(target.node, task);
                }
            }
            Err(trouble) => {
                warn!(node = &*target.name, ?task, err = %trouble, "The cloud could not be followed");
            }
        }
    }

    /// What the metrics show, once a second at most.
    pub(super) fn publish(&mut self, now: Moment) {
        if now < self.next_publish {
            return;
        }
        self.next_publish = now.after(std::time::Duration::from_secs(1));
        let zones = self.lifecycle.zones().iter().map(|(_, zone)| ZoneNow {
            zone: zone.key().as_str().to_owned(),
            ready: zone.ready(),
            not_ready: zone.not_ready(),
        });
        self.shared.counters.zones(zones.collect());
        self.shared.counters.ranges(self.ranges_now());
        self.shared.counters.known(self.names.len(), self.pods.len());
    }
}
