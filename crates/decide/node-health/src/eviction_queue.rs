//! Who waits to be given up, zone by zone, and when the next turn is.
//!
//! Each zone has one turn in hand at most; a turn comes back after the interval of the zone's rate.
//! First come, first served; a node that recovers leaves the queue and takes no turn with it. Time
//! is virtual: asked twice at one moment it answers twice the same.
//! upstream: scheduler/rate_limited_queue.go

use std::collections::BTreeMap;

use crate::facts::NodeId;
use crate::time::Moment;
use crate::zones::{Rate, ZoneId};

/// The one turn of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    rate: Rate,
    ready_at: Moment,
    /// When a predecessor took this zone's last turn; counts under every rate until we take one.
    inherited: Option<Moment>,
}

impl Turn {
    /// A zone begins with its turn in hand.
    fn new(rate: Rate, now: Moment) -> Self {
        Self { rate, ready_at: now, inherited: None }
    }

    /// When the turn can be taken; never at a rate of nothing.
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

    /// A new rate starts with a turn only if the old one had it in hand.
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

/// Place in a queue: earliest moment of a turn, then order of arrival.
type Place = (Moment, u64);

#[derive(Clone, Debug)]
struct ZoneQueue {
    turn: Turn,
    waiting: BTreeMap<Place, NodeId>,
}

/// All zones' queues.
#[derive(Clone, Debug)]
pub struct EvictionQueue {
    starting_rate: Rate,
    zones: BTreeMap<ZoneId, ZoneQueue>,
    places: BTreeMap<NodeId, (ZoneId, Place)>,
    arrivals: u64,
}

impl EvictionQueue {
    /// Nobody waits. New zones start at this rate.
    pub fn new(starting_rate: Rate) -> Self {
        Self { starting_rate, zones: BTreeMap::new(), places: BTreeMap::new(), arrivals: 0 }
    }

    fn zone(&mut self, zone: ZoneId, now: Moment) -> &mut ZoneQueue {
        let rate = self.starting_rate;
        self.zones
            .entry(zone)
            .or_insert_with(|| ZoneQueue { turn: Turn::new(rate, now), waiting: BTreeMap::new() })
    }

    /// A node starts to wait. One that waits already keeps its place, unless its zone changed.
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

    /// A node waits no more. Says whether it did.
    pub fn leave(&mut self, node: NodeId) -> bool {
        let Some((zone, place)) = self.places.remove(&node) else { return false };
        if let Some(queue) = self.zones.get_mut(&zone) {
            queue.waiting.remove(&place);
        }
        true
    }

    /// The zone's rate from now on.
    pub fn set_rate(&mut self, zone: ZoneId, rate: Rate, now: Moment) {
        self.zone(zone, now).turn.change_rate(rate, now);
    }

    /// A turn was taken at this moment by whoever was the controller then.
    pub fn remember_turn(&mut self, zone: ZoneId, at: Moment, now: Moment) {
        self.zone(zone, now).turn.inherit(at.min(now));
    }

    /// The next node whose turn it is, with its zone. Ask again after it took it or left.
    pub fn due(&self, now: Moment) -> Option<(ZoneId, NodeId)> {
        self.zones.iter().filter(|(_, queue)| queue.turn.is_ready(now)).find_map(|(zone, queue)| {
            let ((from, _), node) = queue.waiting.first_key_value()?;
            (*from <= now).then_some((*zone, *node))
        })
    }

    /// The node takes its zone's turn.
    pub fn take(&mut self, node: NodeId, now: Moment) {
        let Some((zone, _)) = self.places.get(&node).copied() else { return };
        self.leave(node);
        self.zone(zone, now).turn.spend(now);
    }

    /// When the next turn is, if nothing else happens.
    pub fn next_wake(&self) -> Option<Moment> {
        let next = |queue: &ZoneQueue| {
            let ((from, _), _) = queue.waiting.first_key_value()?;
            Some((*from).max(queue.turn.ready_at()?))
        };
        self.zones.values().filter_map(next).min()
    }

    /// How many of its zone wait before this node, and when its zone's turn comes; nothing for who
    /// does not wait.
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

    /// Whether nobody of the zone waits and its turn is in hand: as if it were new.
    pub fn is_idle(&self, zone: ZoneId, now: Moment) -> bool {
        let idle = |queue: &ZoneQueue| queue.waiting.is_empty() && queue.turn.is_ready(now);
        self.zones.get(&zone).is_none_or(idle)
    }

    /// The zone is no more; another may get its handle.
    pub fn forget_zone(&mut self, zone: ZoneId) {
        self.zones.remove(&zone);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// What a waiting node can expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Nodes before it.
    pub ahead: usize,
    /// When its zone's next turn is; absent while the rate is nothing.
    pub turn_at: Option<Moment>,
    /// The time between two turns.
    pub interval: Option<std::time::Duration>,
}

#[cfg(test)]
mod tests;
