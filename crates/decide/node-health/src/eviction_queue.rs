//! Nodes waiting for their NoExecute taint, per zone, and when the next eviction token is granted.
//!
//! Each zone has at most one token; a spent token comes back after the interval of the zone's rate.
//! First come, first served; a node that recovers leaves the queue without spending a token. Time
//! is a parameter: the same call with the same `now` gives the same answer. upstream:
//! scheduler/rate_limited_queue.go

use std::collections::BTreeMap;

use crate::facts::NodeId;
use crate::time::Moment;
use crate::zones::{Rate, ZoneId};

/// The one token of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    rate: Rate,
    ready_at: Moment,
    /// When a previous leader spent this zone's last token; counts at every rate until this one
    /// spends one.
    inherited: Option<Moment>,
}

impl Turn {
    /// A zone starts with its token available.
    fn new(rate: Rate, now: Moment) -> Self {
        Self { rate, ready_at: now, inherited: None }
    }

    /// When the token is available; never at a rate of zero.
    fn ready_at(&self) -> Option<Moment> {
        self.rate.interval().map(|_| self.ready_at)
    }

    fn is_ready(&self, now: Moment) -> bool {
        self.ready_at().is_some_and(|at| at <= now)
    }

    fn spend(&mut self, at: Moment) {
        self.inherited = None;
        self.count(at);
    }

    fn inherit(&mut self, at: Moment) {
        self.inherited = self.inherited.max(Some(at));
        self.count(at);
    }

    fn count(&mut self, at: Moment) {
        if let Some(interval) = self.rate.interval() {
            self.ready_at = self.ready_at.max(at.after(interval));
        }
    }

    /// A new rate starts with a token only if one was available at the old rate.
    fn change_rate(&mut self, rate: Rate, now: Moment) {
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
type Place = (Moment, u64);

#[derive(Clone, Debug)]
struct ZoneQueue {
    turn: Turn,
    waiting: BTreeMap<Place, NodeId>,
}

/// The queues of all zones.
#[derive(Clone, Debug)]
pub struct EvictionQueue {
    starting_rate: Rate,
    zones: BTreeMap<ZoneId, ZoneQueue>,
    places: BTreeMap<NodeId, (ZoneId, Place)>,
    arrivals: u64,
}

impl EvictionQueue {
    /// Empty queues. New zones start at this rate.
    pub fn new(starting_rate: Rate) -> Self {
        Self { starting_rate, zones: BTreeMap::new(), places: BTreeMap::new(), arrivals: 0 }
    }

    fn zone(&mut self, zone: ZoneId, now: Moment) -> &mut ZoneQueue {
        let rate = self.starting_rate;
        self.zones
            .entry(zone)
            .or_insert_with(|| ZoneQueue { turn: Turn::new(rate, now), waiting: BTreeMap::new() })
    }

    /// Adds a node. One that is queued already keeps its position, unless its zone changed.
    pub fn join(&mut self, zone: ZoneId, node: NodeId, now: Moment) {
        match self.places.get(&node) {
            Some((known, _)) if *known == zone => {}
            _ => self.place(zone, node, now),
        }
    }

    fn place(&mut self, zone: ZoneId, node: NodeId, now: Moment) {
        self.leave(node);
        let place = (now, self.arrivals);
        self.arrivals += 1;
        self.zone(zone, now).waiting.insert(place, node);
        self.places.insert(node, (zone, place));
    }

    /// Removes a node. Returns whether it was queued.
    pub fn leave(&mut self, node: NodeId) -> bool {
        let Some((zone, place)) = self.places.remove(&node) else { return false };
        if let Some(queue) = self.zones.get_mut(&zone) {
            queue.waiting.remove(&place);
        }
        true
    }

    /// Sets the zone's rate.
    pub fn set_rate(&mut self, zone: ZoneId, rate: Rate, now: Moment) {
        self.zone(zone, now).turn.change_rate(rate, now);
    }

    /// Records that a previous leader spent the zone's token at this time.
    pub fn remember_turn(&mut self, zone: ZoneId, at: Moment, now: Moment) {
        self.zone(zone, now).turn.inherit(at.min(now));
    }

    /// The next node that may be evicted, with its zone. Call again after the node took the token
    /// or left.
    pub fn due(&self, now: Moment) -> Option<(ZoneId, NodeId)> {
        self.zones.iter().filter(|(_, queue)| queue.turn.is_ready(now)).find_map(|(zone, queue)| {
            let ((from, _), node) = queue.waiting.first_key_value()?;
            (*from <= now).then_some((*zone, *node))
        })
    }

    /// Spends the zone's token on the node.
    pub fn take(&mut self, node: NodeId, now: Moment) {
        let Some((zone, _)) = self.places.get(&node).copied() else { return };
        self.leave(node);
        self.zone(zone, now).turn.spend(now);
    }

    /// When the next token becomes available, if nothing else happens.
    pub fn next_wake(&self) -> Option<Moment> {
        let next = |queue: &ZoneQueue| {
            let ((from, _), _) = queue.waiting.first_key_value()?;
            Some((*from).max(queue.turn.ready_at()?))
        };
        self.zones.values().filter_map(next).min()
    }

    /// How many nodes of its zone are ahead of this one, and when the zone's next token is
    /// available; none for a node that is not queued.
    pub fn outlook(&self, node: NodeId) -> Option<Outlook> {
        let (zone, place) = self.places.get(&node)?;
        let queue = self.zones.get(zone)?;
        let ahead = queue.waiting.range(..*place).count();
        Some(Outlook {
            ahead,
            turn_at: queue.turn.ready_at(),
            interval: queue.turn.rate.interval(),
        })
    }

    /// Whether the zone's queue is empty and its token available: no different from a new zone.
    pub fn is_idle(&self, zone: ZoneId, now: Moment) -> bool {
        let idle = |queue: &ZoneQueue| queue.waiting.is_empty() && queue.turn.is_ready(now);
        self.zones.get(&zone).is_none_or(idle)
    }

    /// Removes a zone; its handle may be reused.
    pub fn forget_zone(&mut self, zone: ZoneId) {
        self.zones.remove(&zone);
    }

    /// How many nodes are queued.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no node is queued.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// A queued node's prospects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Nodes ahead of it.
    pub ahead: usize,
    /// When its zone's next token is available; none while the rate is zero.
    pub turn_at: Option<Moment>,
    /// The time between two tokens.
    pub interval: Option<std::time::Duration>,
}

#[cfg(test)]
mod tests;
