//! Combines health, taints, zones and the eviction queue: observations in, writes out.
//!
//! The shell reports observations (`observe`, `lease_seen`, `forget`) and outcomes of the writes it
//! was given (`written`), and calls `tick` at `next_wake`, after a batch of observations, and at
//! least every half of the largest gap; each returns actions. The rules: one write of a kind in
//! flight per node; nothing is decided on a view older than our own last write; a node counts as
//! not ready in its zone as soon as we decide so, but is queued for eviction only once that is
//! written; within one tick all silent nodes are counted first, then zones evaluated, then eviction
//! tokens granted, so that a mass outage is seen as one. Work is proportional to what changed:
//! deadlines lie in one heap with one entry per node, moved lazily.
//!
//! `tick` must not be called before the first complete list of nodes was observed: half a cluster
//! looks like a blackout.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use crate::attention::{Attended, Attention};
use crate::eviction_queue::EvictionQueue;
use crate::facts::{ConditionKind, NodeFacts, NodeId, Truth};
use crate::health::{ConditionWrite, Grace, LifeSigns, NodeEvent, assess};
use crate::taints::{NoExecute, TaintPatch, no_execute, no_schedule, take_turn};
use crate::time::{Moment, Stamp};
use crate::zones::{ZoneId, ZoneKey, ZoneSettings, Zones};

mod record;
use record::{PodMarks, Record, Roster, Slot};

/// The settings of the node lifecycle controller, from its flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Grace periods of silent nodes.
    pub grace: Grace,
    /// Zones and rates.
    pub zones: ZoneSettings,
    /// On a view older than this the controller does not act, and a pause longer than this counts
    /// as absence.
    pub largest_gap: Duration,
    /// How long nodes get to report before the controller acts on silent ones, after the controller
    /// or the API server came back: two periods of a kubelet's lease.
    pub settling: Duration,
    /// When a failed write is retried.
    pub retry: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: Grace::default(),
            zones: ZoneSettings::default(),
            largest_gap: Duration::from_secs(10),
            settling: Duration::from_secs(20),
            retry: Duration::from_millis(100),
        }
    }
}

/// What the shell has to do. Writes carry the resource version they were decided on and must fail
/// on any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write these conditions to the node's status.
    WriteConditions { node: NodeId, version: u64, writes: Vec<ConditionWrite> },
    /// Change the node's taints.
    PatchTaints { node: NodeId, version: u64, patch: TaintPatch },
    /// Set these labels.
    SetLabels { node: NodeId, version: u64, labels: Vec<(Box<str>, Box<str>)> },
    /// Mark the pods on the node as not ready, then call `pods_marked`.
    MarkPodsNotReady { node: NodeId },
    /// Record this event on the node.
    Tell { node: NodeId, event: NodeEvent },
}

/// Which write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// Conditions.
    Conditions,
    /// Taints.
    Taints,
    /// Labels.
    Labels,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded; the object has this version now.
    Written { version: u64 },
    /// It failed or its outcome is unknown: read again and decide again.
    Failed,
}

/// How an observation arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// As a watch event; versions older than the known one are stale.
    Event,
    /// In a fresh list, which is true whatever was known before.
    List,
}

/// The controller's state and its decisions about nodes.
#[derive(Clone, Debug)]
pub struct NodeLifecycle {
    settings: Settings,
    attention: Attention,
    roster: Roster,
    zones: Zones,
    queue: EvictionQueue,
    deadlines: BinaryHeap<Reverse<(Attended, NodeId)>>,
    retries: BTreeSet<(Moment, NodeId)>,
    /// Nodes with a deferred write (conditions Unknown, a taint swap), because the controller may
    /// not act now.
    held: BTreeSet<NodeId>,
}

impl NodeLifecycle {
    /// A controller that has just started.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            attention: Attention::new(settings.largest_gap, settings.settling),
            roster: Roster::default(),
            zones: Zones::new(settings.zones),
            queue: EvictionQueue::new(settings.zones.rate),
            deadlines: BinaryHeap::new(),
            retries: BTreeSet::new(),
            held: BTreeSet::new(),
        }
    }

    /// Records a node.
    pub fn observe(
        &mut self,
        now: Moment,
        node: NodeId,
        facts: NodeFacts,
        sight: Sight,
    ) -> Vec<Action> {
        // A node's event says nothing about the watch of leases, so it does not prove the view.
        let at = self.attention.at_most(now);
        let mut actions = Vec::new();
        if self.roster.get(node).is_none() {
            self.meet(now, node, facts, at);
            actions.push(Action::Tell { node, event: NodeEvent::Registered });
        } else if let Some(record) = self.roster.get_mut(node) {
            if sight == Sight::Event && facts.version < record.facts.version {
                return actions;
            }
            record.signs.status_seen(&facts.conditions, at);
            let changed = record.facts.version != facts.version;
            let fell = record.facts.conditions.is_ready() && is_unknown(&facts);
            record.facts = facts;
            // A previous leader's write made it not ready: its pods are ours to mark now.
            if fell && record.pods == PodMarks::Settled {
                record.pods = PodMarks::Wanted;
            }
            // The response to the write that made it not ready may be lost, or still in flight.
            if changed && record.settle_fall(is_unknown(&record.facts)) {
                actions.push(Action::Tell { node, event: NodeEvent::NotReady });
            }
            // The first status shortens the grace period; the heap would notice too late.
            if !record.silent && record.signs.patience_ends(&self.settings.grace) < record.deadline
            {
                self.watch(node);
            }
        }
        self.settle_zone(node, now);
        self.recount(node, at);
        self.decide(now, node, &mut actions);
        actions
    }

    fn meet(&mut self, now: Moment, node: NodeId, facts: NodeFacts, at: Attended) {
        let zone = self.zone(&facts.zone, now);
        let signs = LifeSigns::first_sight(&facts.conditions, None, at);
        // The previous leader spent the zone's token when it tainted this node.
        if let Some(given_up) =
            facts.taints.iter().filter(|taint| is_lost(taint)).find_map(|taint| taint.added)
        {
            self.queue.remember_turn(zone, given_up.taken_as_ours(), now);
        }
        self.roster.insert(node, Record::new(facts, signs, zone));
        self.watch(node);
    }

    /// Records a node's lease from the watch.
    pub fn lease_seen(&mut self, now: Moment, node: NodeId, renewed: Stamp) {
        let at = self.attention.look(now);
        if let Some(record) = self.roster.get_mut(node) {
            record.signs.lease_seen(renewed, at);
            if record.silent {
                self.recount(node, at);
            }
        }
    }

    /// Records a node's lease that was read or listed: a heartbeat like any other, but it does not
    /// prove that the view is complete.
    pub fn lease_read(&mut self, now: Moment, node: NodeId, renewed: Stamp) {
        let at = self.attention.at_most(now);
        if let Some(record) = self.roster.get_mut(node) {
            record.signs.lease_seen(renewed, at);
            if record.silent {
                self.recount(node, at);
            }
        }
    }

    /// Records that a node is gone.
    pub fn forget(&mut self, node: NodeId) -> Vec<Action> {
        self.queue.leave(node);
        let Some(record) = self.roster.remove(node) else { return Vec::new() };
        self.zones.recount(record.zone, record.counted, None);
        vec![Action::Tell { node, event: NodeEvent::Removing }]
    }

    /// Records the outcome of a write.
    pub fn written(
        &mut self,
        now: Moment,
        node: NodeId,
        kind: WriteKind,
        outcome: Outcome,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(record) = self.roster.get_mut(node) else { return actions };
        let asked = record.slot(kind).land();
        match (outcome, asked) {
            (Outcome::Written { version }, Some(slot)) => {
                if record.facts.version < version {
                    slot.apply_to(&mut record.facts);
                    record.facts.version = version;
                }
                if kind == WriteKind::Conditions && record.settle_fall(true) {
                    actions.push(Action::Tell { node, event: NodeEvent::NotReady });
                }
                self.recount(node, self.attention.attended());
                self.decide(now, node, &mut actions);
            }
            _ => {
                self.retries.insert((now.after(self.settings.retry), node));
            }
        }
        actions
    }

    /// Records the time with which the requested taints are written. The shell uses another clock,
    /// and a taint that comes back with another time than expected would be taken for a new one.
    pub fn taints_dated(&mut self, node: NodeId, date: Stamp) {
        if let Some(record) = self.roster.get_mut(node)
            && let Slot::Taints(patch) = &mut record.taints_write
        {
            for taint in &mut patch.add {
                taint.added = taint.added.map(|_| date);
            }
        }
    }

    /// Records whether marking the pods of a node succeeded; if not, it is retried.
    pub fn pods_marked(&mut self, now: Moment, node: NodeId, through: bool) {
        if let Some(record) = self.roster.get_mut(node) {
            // A node that became not ready again meanwhile has new marks pending.
            if record.pods == PodMarks::InFlight {
                record.pods = if through { PodMarks::Settled } else { PodMarks::Wanted };
            }
            if !through {
                self.retries.insert((now.after(self.settings.retry), node));
            }
        }
    }

    /// Does what is due. `proven_through`: the time up to which the shell can prove that it has
    /// seen everything (its watches delivered something, or it has just read).
    pub fn tick(&mut self, now: Moment, proven_through: Moment) -> Vec<Action> {
        let at = self.attention.look(proven_through.min(now));
        let mut actions = Vec::new();
        let mut due = self.overdue(at);
        while let Some((when, node)) = self.retries.first().copied() {
            if when > now {
                break;
            }
            self.retries.pop_first();
            due.push(node);
        }
        if self.attention.may_act(now) {
            due.extend(std::mem::take(&mut self.held));
        }
        for node in &due {
            self.recount(*node, at);
        }
        self.judge_zones(now, at, &mut actions);
        for node in due {
            self.decide(now, node, &mut actions);
        }
        self.give_turns(now, &mut actions);
        actions
    }

    /// When `tick` is due next, if nothing else happens.
    pub fn next_wake(&mut self) -> Option<Moment> {
        self.renew_first_deadline();
        let silence = self.deadlines.peek().and_then(|Reverse((end, _))| {
            self.attention.reaches(end.after(Duration::from_nanos(1)))
        });
        let retry = self.retries.first().map(|(when, _)| *when);
        let turn = self.queue.next_wake().map(|turn| turn.max(self.attention.settled_at()));
        let held = (!self.held.is_empty()).then(|| self.attention.settled_at());
        [silence, retry, turn, held].into_iter().flatten().min()
    }

    /// Adds a node's deadline to the heap; an older entry becomes stale.
    fn watch(&mut self, node: NodeId) {
        let Some(record) = self.roster.get_mut(node) else { return };
        record.silent = false;
        record.deadline = record.signs.patience_ends(&self.settings.grace);
        self.deadlines.push(Reverse((record.deadline, node)));
    }

    /// Ensures that the first deadline in the heap is current: heartbeats do not touch the heap,
    /// and a node seen since must not cause a wake-up.
    fn renew_first_deadline(&mut self) {
        while let Some(Reverse((end, node))) = self.deadlines.peek().copied() {
            let record = self.roster.get(node);
            match record.filter(|record| !record.silent && record.deadline == end) {
                Some(record) if record.signs.patience_ends(&self.settings.grace) <= end => return,
                Some(_) => {
                    self.deadlines.pop();
                    self.watch(node);
                }
                None => {
                    self.deadlines.pop();
                }
            }
        }
    }

    /// Removes the nodes whose grace period is over from the heap; those seen meanwhile are added
    /// again.
    fn overdue(&mut self, at: Attended) -> Vec<NodeId> {
        let mut silent = Vec::new();
        while let Some(Reverse((end, node))) = self.deadlines.peek().copied() {
            if end >= at {
                break;
            }
            self.deadlines.pop();
            let Some(record) = self.roster.get_mut(node) else { continue };
            if record.silent || record.deadline != end {
                continue;
            }
            if record.signs.patience_ends(&self.settings.grace) >= at {
                self.watch(node);
            } else {
                record.silent = true;
                silent.push(node);
            }
        }
        silent
    }

    /// Updates how a node counts in its zone: ready, not ready (also while it is silent), or not at
    /// all when it is excluded. A silent node whose grace period has been renewed stops being
    /// silent first: its deadline goes back into the heap.
    fn recount(&mut self, node: NodeId, at: Attended) {
        let Some(record) = self.roster.get_mut(node) else { return };
        let ends = record.signs.patience_ends(&self.settings.grace);
        if record.silent && ends >= at {
            self.watch(node);
        }
        let Some(record) = self.roster.get_mut(node) else { return };
        let counted =
            (!record.facts.excluded).then(|| record.facts.conditions.is_ready() && !record.silent);
        self.zones.recount(record.zone, record.counted, counted);
        record.counted = counted;
    }

    /// Labels may move a node to another zone.
    fn settle_zone(&mut self, node: NodeId, now: Moment) {
        let Some(record) = self.roster.get(node) else { return };
        if self.zones.get(record.zone).is_some_and(|zone| *zone.key() == record.facts.zone) {
            return;
        }
        let key = record.facts.zone.clone();
        let zone = self.zone(&key, now);
        let Some(record) = self.roster.get_mut(node) else { return };
        self.zones.recount(record.zone, record.counted, None);
        record.zone = zone;
        record.counted = None;
    }

    /// A zone's handle. When there are very many zones, empty ones are removed first; one whose
    /// token is spent is kept until the token would be available again.
    fn zone(&mut self, key: &ZoneKey, now: Moment) -> ZoneId {
        if self.zones.is_crowded(key) {
            let used: BTreeSet<ZoneId> = self.roster.zones().collect();
            let queue = &self.queue;
            let swept = self.zones.sweep(|zone| used.contains(&zone) || !queue.is_idle(zone, now));
            for zone in swept {
                self.queue.forget_zone(zone);
            }
        }
        self.zones.handle(key)
    }

    fn judge_zones(&mut self, now: Moment, at: Attended, actions: &mut Vec<Action>) {
        let changes = self.zones.evaluate();
        for (zone, rate) in &changes.rates {
            self.queue.set_rate(*zone, *rate, now);
        }
        if changes.blackout_ended {
            for node in self.roster.ids() {
                if let Some(record) = self.roster.get_mut(node) {
                    record.signs.forgive(at);
                }
                self.recount(node, at);
            }
        }
        if changes.blackout_began || changes.blackout_ended {
            for node in self.roster.ids() {
                self.decide(now, node, actions);
            }
        }
    }

    /// Decides what one node needs now.
    fn decide(&mut self, now: Moment, node: NodeId, actions: &mut Vec<Action>) {
        let at = self.attention.attended();
        let blackout = self.zones.in_blackout();
        let Some(record) = self.roster.get_mut(node) else { return };
        if record.conditions_write.is_idle() {
            let found = assess(&record.signs, &record.facts, &self.settings.grace, at, now);
            // A write decided before an absence must not be the first thing done after it.
            if !found.writes.is_empty() && !self.attention.may_act(now) {
                self.held.insert(node);
            } else if !found.writes.is_empty() {
                let version = record.facts.version;
                actions.push(Action::WriteConditions {
                    node,
                    version,
                    writes: found.writes.clone(),
                });
                record.conditions_write = Slot::Conditions(found.writes);
                if found.falls {
                    record.pods = PodMarks::Unsure;
                }
            }
        }
        if record.pods == PodMarks::Wanted {
            if record.facts.conditions.is_ready() {
                record.pods = PodMarks::Settled;
            } else {
                record.pods = PodMarks::InFlight;
                actions.push(Action::MarkPodsNotReady { node });
            }
        }
        if record.labels_write.is_idle() && !record.facts.label_fixes.is_empty() {
            let labels = record.facts.label_fixes.clone();
            actions.push(Action::SetLabels { node, version: record.facts.version, labels });
            record.labels_write = Slot::Labels;
        }
        if !record.taints_write.is_idle() {
            return;
        }
        let mut patch = no_schedule(&record.facts, now);
        match no_execute(&record.facts, blackout, now) {
            NoExecute::Settled => {
                self.queue.leave(node);
            }
            // A swap evicts pods that tolerate only the other taint.
            NoExecute::Now(more) if more.evicts() && !self.attention.may_act(now) => {
                self.held.insert(node);
            }
            NoExecute::Now(more) => {
                self.queue.leave(node);
                patch = patch.and(more);
            }
            NoExecute::Wait => self.queue.join(record.zone, node, now),
        }
        record.patch_taints(node, patch, actions);
    }

    /// Grants eviction tokens to queued nodes, unless the controller may not act now.
    fn give_turns(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.attention.may_act(now) {
            return;
        }
        while let Some((_, node)) = self.queue.due(now) {
            let Some(record) = self.roster.get_mut(node) else {
                self.queue.leave(node);
                continue;
            };
            // A write that is in flight or was refused may take long and must cause no wake-ups.
            // When it ends the node is decided again, and queued again if necessary.
            if !record.taints_write.is_idle() {
                self.queue.leave(node);
                continue;
            }
            match take_turn(&record.facts, now) {
                Some(patch) => {
                    self.queue.take(node, now);
                    record.patch_taints(node, patch, actions);
                }
                None => {
                    self.queue.leave(node);
                }
            }
        }
    }

    /// The facts of a node.
    pub fn facts(&self, node: NodeId) -> Option<&NodeFacts> {
        self.roster.get(node).map(|record| &record.facts)
    }

    /// A node's zone.
    pub fn zone_of(&self, node: NodeId) -> Option<ZoneId> {
        self.roster.get(node).map(|record| record.zone)
    }

    /// Observed time since a node's last heartbeat.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.roster.get(node).map(|record| self.attention.attended().since(record.signs.heard()))
    }

    /// When its lease was last renewed, on its own clock, as far as observed.
    pub fn renewed(&self, node: NodeId) -> Option<Stamp> {
        self.roster.get(node)?.signs.renewed()
    }

    /// Whether a node's grace period is over on the observation clock: a write decided on its
    /// silence may be queued, and must not be sent if the node was seen meanwhile.
    pub fn is_silent(&self, node: NodeId) -> bool {
        self.roster.get(node).is_some_and(|record| {
            self.attention.attended() > record.signs.patience_ends(&self.settings.grace)
        })
    }

    /// Whether a write of its taints is pending, with no outcome reported yet.
    pub fn writes_taints(&self, node: NodeId) -> bool {
        self.roster.get(node).is_some_and(|record| !record.taints_write.is_idle())
    }

    /// When a node that stays silent is considered silent.
    pub fn patience_ends(&self, node: NodeId) -> Option<Moment> {
        let record = self.roster.get(node)?;
        self.attention.reaches(record.signs.patience_ends(&self.settings.grace))
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
    pub fn attention(&self) -> &Attention {
        &self.attention
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The node's Ready status: whether a pod bound to it has to be marked as not ready.
    pub fn node_ready(&self, node: NodeId) -> Option<Truth> {
        self.facts(node)?.conditions.status(ConditionKind::Ready)
    }
}

fn is_unknown(facts: &NodeFacts) -> bool {
    facts.conditions.status(ConditionKind::Ready) == Some(Truth::Unknown)
}

fn is_lost(taint: &crate::facts::Taint) -> bool {
    taint.key.means_lost() && taint.effect == pod_model::TaintEffect::NoExecute
}

#[cfg(test)]
mod tests;
