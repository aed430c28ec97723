//! What the lifecycle knows of nodes and zones.

use std::time::Duration;

use super::{NodeLifecycle, NodeLifecycleSettings};
use crate::eviction_queue::EvictionQueue;
use crate::facts::{ConditionKind, ConditionState, NodeHealthFacts, NodeId};
use crate::observation_clock::ObservationClock;
use crate::time::{ControllerTime, RemoteTime};
use crate::zones::{ZoneId, Zones};

impl NodeLifecycle {
    /// The facts of a node.
    pub fn facts(&self, node: NodeId) -> Option<&NodeHealthFacts> {
        self.node_table.get(node).map(|node_record| &node_record.facts)
    }

    /// A node's zone.
    pub fn zone_of(&self, node: NodeId) -> Option<ZoneId> {
        self.node_table.get(node).map(|node_record| node_record.zone)
    }

    /// Observed time since a node's last heartbeat.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.node_table.get(node).map(|node_record| {
            self.observation_clock.observed_time().since(node_record.heartbeats.last_seen())
        })
    }

    /// When its lease was last renewed, on its own clock, as far as observed.
    pub fn renewed(&self, node: NodeId) -> Option<RemoteTime> {
        self.node_table.get(node)?.heartbeats.renewed()
    }

    /// Whether a node's grace period is over on the observation clock: a write decided on its
    /// silence may be queued, and must not be sent if the node was seen meanwhile.
    pub fn is_silent(&self, node: NodeId) -> bool {
        self.node_table.get(node).is_some_and(|node_record| {
            self.observation_clock.observed_time()
                > node_record.heartbeats.grace_ends_at(&self.settings.grace)
        })
    }

    /// Whether a write of its taints is pending, with no outcome reported yet.
    pub fn writes_taints(&self, node: NodeId) -> bool {
        self.node_table.get(node).is_some_and(|node_record| !node_record.taints_write.is_idle())
    }

    /// When a node that stays silent is considered silent.
    pub fn grace_ends_at(&self, node: NodeId) -> Option<ControllerTime> {
        let node_record = self.node_table.get(node)?;
        self.observation_clock
            .reached_at(node_record.heartbeats.grace_ends_at(&self.settings.grace))
    }

    /// The zones.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The eviction queue.
    pub fn queue(&self) -> &EvictionQueue {
        &self.queue
    }

    /// The observation clock.
    pub fn observation_clock(&self) -> &ObservationClock {
        &self.observation_clock
    }

    /// The settings.
    pub fn settings(&self) -> &NodeLifecycleSettings {
        &self.settings
    }

    /// The node's Ready status: whether a pod bound to it has to be marked as not ready.
    pub fn node_ready(&self, node: NodeId) -> Option<ConditionState> {
        self.facts(node)?.conditions.status(ConditionKind::Ready)
    }
}
