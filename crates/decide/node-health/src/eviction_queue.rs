//! Nodes waiting for their NoExecute taint, per zone, and when the next eviction token is granted.
//!
//! Each zone has at most one token; a spent token comes back after the interval of the zone's rate.
//! First come, first served; a node that recovers leaves the queue without spending a token. Time
//! is a parameter: the same call with the same `now` gives the same answer. upstream:
//! scheduler/rate_limited_queue.go

use std::collections::BTreeMap;

use crate::facts::NodeId;
use crate::time::ControllerTime;
use crate::zones::{EvictionRate, ZoneId};

/// The one token of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionToken {
    rate: EvictionRate,
    ready_at: ControllerTime,
    /// When a previous leader spent this zone's last token; counts at every rate until this one
    /// spends one.
    inherited: Option<ControllerTime>,
}

impl EvictionToken {
    /// A zone starts with its token available.
    fn new(rate: EvictionRate, now: ControllerTime) -> Self {
        Self { rate, ready_at: now, inherited: None }
    }

    /// When the token is available; never at a rate of zero.
    fn ready_at(&self) -> Option<ControllerTime> {
        self.rate.interval().map(|_| self.ready_at)
    }

    fn is_ready(&self, now: ControllerTime) -> bool {
        self.ready_at().is_some_and(|at| at <= now)
    }

    fn spend(&mut self, at: ControllerTime) {
        self.inherited = None;
        self.count(at);
    }

    fn inherit(&mut self, at: ControllerTime) {
        self.inherited = self.inherited.max(Some(at));
        self.count(at);
    }

    fn count(&mut self, at: ControllerTime) {
        if let Some(interval) = self.rate.interval() {
            self.ready_at = self.ready_at.max(at.after(interval));
        }
    }

    /// A new rate starts with a token only if one was available at the old rate.
    fn change_rate(&mut self, rate: EvictionRate, now: ControllerTime) {
        if rate == self.rate {
            return;
        }
        let had = self.is_ready(now);
        self.rate = rate;
        self.ready_at = now;
        if !had {
            self.count(now);
        }
        if let Some(at) = self.inherited {
            self.count(at);
        }
    }
}

/// Position in a queue: earliest time of a token, then order of arrival.
type QueueKey = (ControllerTime, u64);

#[derive(Clone, Debug)]
struct ZoneQueue {
    token: EvictionToken,
    waiting: BTreeMap<QueueKey, NodeId>,
}

/// The queues of all zones.
#[derive(Clone, Debug)]
pub struct EvictionQueue {
    starting_rate: EvictionRate,
    zones: BTreeMap<ZoneId, ZoneQueue>,
    queue_keys: BTreeMap<NodeId, (ZoneId, QueueKey)>,
    arrivals: u64,
}

impl EvictionQueue {
    /// Empty queues. New zones start at this rate.
    pub fn new(starting_rate: EvictionRate) -> Self {
        Self { starting_rate, zones: BTreeMap::new(), queue_keys: BTreeMap::new(), arrivals: 0 }
    }

    fn zone(&mut self, zone: ZoneId, now: ControllerTime) -> &mut ZoneQueue {
        let rate = self.starting_rate;
        self.zones.entry(zone).or_insert_with(|| ZoneQueue {
            token: EvictionToken::new(rate, now),
            waiting: BTreeMap::new(),
        })
    }

    /// Adds a node. One that is queued already keeps its position, unless its zone changed.
    pub fn join(&mut self, zone: ZoneId, node: NodeId, now: ControllerTime) {
        match self.queue_keys.get(&node) {
            Some((known, _)) if *known == zone => {}
            _ => self.queue_key(zone, node, now),
        }
    }

    fn queue_key(&mut self, zone: ZoneId, node: NodeId, now: ControllerTime) {
        self.leave(node);
        let queue_key = (now, self.arrivals);
        self.arrivals += 1;
        self.zone(zone, now).waiting.insert(queue_key, node);
        self.queue_keys.insert(node, (zone, queue_key));
    }

    /// Removes a node. Returns whether it was queued.
    pub fn leave(&mut self, node: NodeId) -> bool {
        let Some((zone, queue_key)) = self.queue_keys.remove(&node) else { return false };
        if let Some(queue) = self.zones.get_mut(&zone) {
            queue.waiting.remove(&queue_key);
        }
        true
    }

    /// Sets the zone's rate.
    pub fn set_rate(&mut self, zone: ZoneId, rate: EvictionRate, now: ControllerTime) {
        self.zone(zone, now).token.change_rate(rate, now);
    }

    /// Records that a previous leader spent the zone's token at this time.
    pub fn record_past_eviction(&mut self, zone: ZoneId, at: ControllerTime, now: ControllerTime) {
        self.zone(zone, now).token.inherit(at.min(now));
    }

    /// The next node that may be evicted, with its zone. Call again after the node took the token
    /// or left.
    pub fn due(&self, now: ControllerTime) -> Option<(ZoneId, NodeId)> {
        self.zones.iter().filter(|(_, queue)| queue.token.is_ready(now)).find_map(
            |(zone, queue)| {
                let ((from, _), node) = queue.waiting.first_key_value()?;
                (*from <= now).then_some((*zone, *node))
            },
        )
    }

    /// Spends the zone's token on the node.
    pub fn take(&mut self, node: NodeId, now: ControllerTime) {
        let Some((zone, _)) = self.queue_keys.get(&node).copied() else { return };
        self.leave(node);
        self.zone(zone, now).token.spend(now);
    }

    /// When the next token becomes available, if nothing else happens.
    pub fn next_wake(&self) -> Option<ControllerTime> {
        let next = |queue: &ZoneQueue| {
            let ((from, _), _) = queue.waiting.first_key_value()?;
            Some((*from).max(queue.token.ready_at()?))
        };
        self.zones.values().filter_map(next).min()
    }

    /// How many nodes of its zone are ahead of this one, and when the zone's next token is
    /// available; none for a node that is not queued.
    pub fn outlook(&self, node: NodeId) -> Option<QueuePosition> {
        let (zone, queue_key) = self.queue_keys.get(&node)?;
        let queue = self.zones.get(zone)?;
        let ahead = queue.waiting.range(..*queue_key).count();
        Some(QueuePosition {
            ahead,
            next_eviction_at: queue.token.ready_at(),
            interval: queue.token.rate.interval(),
        })
    }

    /// Whether the zone's queue is empty and its token available: no different from a new zone.
    pub fn is_idle(&self, zone: ZoneId, now: ControllerTime) -> bool {
        let idle = |queue: &ZoneQueue| queue.waiting.is_empty() && queue.token.is_ready(now);
        self.zones.get(&zone).is_none_or(idle)
    }

    /// Removes a zone; its handle may be reused.
    pub fn forget_zone(&mut self, zone: ZoneId) {
        self.zones.remove(&zone);
    }

    /// How many nodes are queued.
    pub fn len(&self) -> usize {
        self.queue_keys.len()
    }

    /// Whether no node is queued.
    pub fn is_empty(&self) -> bool {
        self.queue_keys.is_empty()
    }
}

/// A queued node's prospects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Nodes ahead of it.
    pub ahead: usize,
    /// When its zone's next token is available; none while the rate is zero.
    pub next_eviction_at: Option<ControllerTime>,
    /// The time between two tokens.
    pub interval: Option<std::time::Duration>,
}

#[cfg(test)]
mod tests;
