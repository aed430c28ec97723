//! Combines health, taints, zones and the eviction queue: observations in, writes out.
//!
//! The shell reports observations (`observe`, `observe_lease`, `forget`) and outcomes of the writes it
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

use crate::eviction_queue::EvictionQueue;
use crate::facts::{ConditionKind, ConditionState, NodeHealthFacts, NodeId};
use crate::health::{ConditionWrite, Grace, NodeHealthEvent, NodeHeartbeats, assess};
use crate::observation_clock::{ObservationClock, ObservedTime};
use crate::taints::{NoExecuteChange, TaintPatch, eviction_patch, no_execute, no_schedule};
use crate::time::{ControllerTime, RemoteTime};
use crate::zones::{ZoneId, ZoneKey, ZoneSettings, Zones};

mod node_record;
mod queries;
use node_record::{NodeRecord, NodeTable, PodMarkState, Slot};

/// The settings of the node lifecycle controller, from its flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLifecycleSettings {
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

impl Default for NodeLifecycleSettings {
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
pub enum LifecycleAction {
    /// Write these conditions to the node's status.
    WriteConditions { node: NodeId, version: u64, writes: Vec<ConditionWrite> },
    /// Change the node's taints.
    PatchTaints { node: NodeId, version: u64, patch: TaintPatch },
    /// Set these labels.
    SetLabels { node: NodeId, version: u64, labels: Vec<(Box<str>, Box<str>)> },
    /// Mark the pods on the node as not ready, then call `pods_marked`.
    MarkPodsNotReady { node: NodeId },
    /// Record this event on the node.
    EmitEvent { node: NodeId, event: NodeHealthEvent },
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
pub enum WriteOutcome {
    /// It succeeded; the object has this version now.
    Written { version: u64 },
    /// It failed or its outcome is unknown: read again and decide again.
    Failed,
}

/// How an observation arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservationSource {
    /// As a watch event; versions older than the known one are stale.
    Event,
    /// In a fresh list, which is true whatever was known before.
    List,
}

/// The controller's state and its decisions about nodes.
#[derive(Clone, Debug)]
pub struct NodeLifecycle {
    settings: NodeLifecycleSettings,
    observation_clock: ObservationClock,
    node_table: NodeTable,
    zones: Zones,
    queue: EvictionQueue,
    deadlines: BinaryHeap<Reverse<(ObservedTime, NodeId)>>,
    retries: BTreeSet<(ControllerTime, NodeId)>,
    /// Nodes with a deferred write (conditions Unknown, a taint swap), because the controller may
    /// not act now.
    deferred: BTreeSet<NodeId>,
}

impl NodeLifecycle {
    /// A controller that has just started.
    pub fn new(settings: NodeLifecycleSettings) -> Self {
        Self {
            settings,
            observation_clock: ObservationClock::new(settings.largest_gap, settings.settling),
            node_table: NodeTable::default(),
            zones: Zones::new(settings.zones),
            queue: EvictionQueue::new(settings.zones.rate),
            deadlines: BinaryHeap::new(),
            retries: BTreeSet::new(),
            deferred: BTreeSet::new(),
        }
    }

    /// Records a node.
    pub fn observe(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        facts: NodeHealthFacts,
        source: ObservationSource,
    ) -> Vec<LifecycleAction> {
        // A node's event says nothing about the watch of leases, so it does not prove the view.
        let at = self.observation_clock.latest_possible(now);
        let mut actions = Vec::new();
        if self.node_table.get(node).is_none() {
            self.add_node(now, node, facts, at);
            actions.push(LifecycleAction::EmitEvent { node, event: NodeHealthEvent::Registered });
        } else if let Some(node_record) = self.node_table.get_mut(node) {
            if source == ObservationSource::Event && facts.version < node_record.facts.version {
                return actions;
            }
            node_record.heartbeats.observe_status(&facts.conditions, at);
            let changed = node_record.facts.version != facts.version;
            let fell = node_record.facts.conditions.is_ready() && is_unknown(&facts);
            node_record.facts = facts;
            // A previous leader's write made it not ready: its pods are ours to mark now.
            if fell && node_record.pods == PodMarkState::Settled {
                node_record.pods = PodMarkState::Wanted;
            }
            // The response to the write that made it not ready may be lost, or still in flight.
            if changed && node_record.resolve_not_ready_transition(is_unknown(&node_record.facts)) {
                actions.push(LifecycleAction::EmitEvent { node, event: NodeHealthEvent::NotReady });
            }
            // The first status shortens the grace period; the heap would notice too late.
            if !node_record.silent
                && node_record.heartbeats.grace_ends_at(&self.settings.grace) < node_record.deadline
            {
                self.schedule_deadline(node);
            }
        }
        self.update_zone(node, now);
        self.recount(node, at);
        self.decide(now, node, &mut actions);
        actions
    }

    fn add_node(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        facts: NodeHealthFacts,
        at: ObservedTime,
    ) {
        let zone = self.zone(&facts.zone, now);
        let heartbeats = NodeHeartbeats::first_seen(&facts.conditions, None, at);
        // The previous leader spent the zone's token when it tainted this node.
        if let Some(tainted_at) =
            facts.taints.iter().filter(|taint| is_lost(taint)).find_map(|taint| taint.added)
        {
            self.queue.record_past_eviction(zone, tainted_at.assume_local_clock(), now);
        }
        self.node_table.insert(node, NodeRecord::new(facts, heartbeats, zone));
        self.schedule_deadline(node);
    }

    /// Records a node's lease from the watch.
    pub fn observe_lease(&mut self, now: ControllerTime, node: NodeId, renewed: RemoteTime) {
        let at = self.observation_clock.observed_through(now);
        if let Some(node_record) = self.node_table.get_mut(node) {
            node_record.heartbeats.observe_lease(renewed, at);
            if node_record.silent {
                self.recount(node, at);
            }
        }
    }

    /// Records a node's lease that was read or listed: a heartbeat like any other, but it does not
    /// prove that the view is complete.
    pub fn observe_listed_lease(&mut self, now: ControllerTime, node: NodeId, renewed: RemoteTime) {
        let at = self.observation_clock.latest_possible(now);
        if let Some(node_record) = self.node_table.get_mut(node) {
            node_record.heartbeats.observe_lease(renewed, at);
            if node_record.silent {
                self.recount(node, at);
            }
        }
    }

    /// Records that a node is gone.
    pub fn forget(&mut self, node: NodeId) -> Vec<LifecycleAction> {
        self.queue.leave(node);
        let Some(node_record) = self.node_table.remove(node) else { return Vec::new() };
        self.zones.recount(node_record.zone, node_record.counted, None);
        vec![LifecycleAction::EmitEvent { node, event: NodeHealthEvent::Removing }]
    }

    /// Records the outcome of a write.
    pub fn written(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        kind: WriteKind,
        outcome: WriteOutcome,
    ) -> Vec<LifecycleAction> {
        let mut actions = Vec::new();
        let Some(node_record) = self.node_table.get_mut(node) else { return actions };
        let asked = node_record.slot(kind).complete();
        match (outcome, asked) {
            (WriteOutcome::Written { version }, Some(slot)) => {
                if node_record.facts.version < version {
                    slot.apply_to(&mut node_record.facts);
                    node_record.facts.version = version;
                }
                if kind == WriteKind::Conditions && node_record.resolve_not_ready_transition(true) {
                    actions.push(LifecycleAction::EmitEvent {
                        node,
                        event: NodeHealthEvent::NotReady,
                    });
                }
                self.recount(node, self.observation_clock.observed_time());
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
    pub fn record_taint_time(&mut self, node: NodeId, date: RemoteTime) {
        if let Some(node_record) = self.node_table.get_mut(node)
            && let Slot::Taints(patch) = &mut node_record.taints_write
        {
            for taint in &mut patch.add {
                taint.added = taint.added.map(|_| date);
            }
        }
    }

    /// Records whether marking the pods of a node succeeded; if not, it is retried.
    pub fn pods_marked(&mut self, now: ControllerTime, node: NodeId, through: bool) {
        if let Some(node_record) = self.node_table.get_mut(node) {
            // A node that became not ready again meanwhile has new marks pending.
            if node_record.pods == PodMarkState::InFlight {
                node_record.pods =
                    if through { PodMarkState::Settled } else { PodMarkState::Wanted };
            }
            if !through {
                self.retries.insert((now.after(self.settings.retry), node));
            }
        }
    }

    /// Does what is due. `proven_through`: the time up to which the shell can prove that it has
    /// seen everything (its watches delivered something, or it has just read).
    pub fn tick(
        &mut self,
        now: ControllerTime,
        proven_through: ControllerTime,
    ) -> Vec<LifecycleAction> {
        let at = self.observation_clock.observed_through(proven_through.min(now));
        let mut actions = Vec::new();
        let mut due = self.overdue(at);
        while let Some((when, node)) = self.retries.first().copied() {
            if when > now {
                break;
            }
            self.retries.pop_first();
            due.push(node);
        }
        if self.observation_clock.may_act(now) {
            due.extend(std::mem::take(&mut self.deferred));
        }
        for node in &due {
            self.recount(*node, at);
        }
        self.evaluate_zones(now, at, &mut actions);
        for node in due {
            self.decide(now, node, &mut actions);
        }
        self.grant_evictions(now, &mut actions);
        actions
    }

    /// When `tick` is due next, if nothing else happens.
    pub fn next_wake(&mut self) -> Option<ControllerTime> {
        self.renew_first_deadline();
        let silence = self.deadlines.peek().and_then(|Reverse((end, _))| {
            self.observation_clock.reached_at(end.after(Duration::from_nanos(1)))
        });
        let retry = self.retries.first().map(|(when, _)| *when);
        let turn = self.queue.next_wake().map(|turn| turn.max(self.observation_clock.settled_at()));
        let deferred = (!self.deferred.is_empty()).then(|| self.observation_clock.settled_at());
        [silence, retry, turn, deferred].into_iter().flatten().min()
    }

    /// Adds a node's deadline to the heap; an older entry becomes stale.
    fn schedule_deadline(&mut self, node: NodeId) {
        let Some(node_record) = self.node_table.get_mut(node) else { return };
        node_record.silent = false;
        node_record.deadline = node_record.heartbeats.grace_ends_at(&self.settings.grace);
        self.deadlines.push(Reverse((node_record.deadline, node)));
    }

    /// Ensures that the first deadline in the heap is current: heartbeats do not touch the heap,
    /// and a node seen since must not cause a wake-up.
    fn renew_first_deadline(&mut self) {
        while let Some(Reverse((end, node))) = self.deadlines.peek().copied() {
            let node_record = self.node_table.get(node);
            match node_record
                .filter(|node_record| !node_record.silent && node_record.deadline == end)
            {
                Some(node_record)
                    if node_record.heartbeats.grace_ends_at(&self.settings.grace) <= end =>
                {
                    return;
                }
                Some(_) => {
                    self.deadlines.pop();
                    self.schedule_deadline(node);
                }
                None => {
                    self.deadlines.pop();
                }
            }
        }
    }

    /// Removes the nodes whose grace period is over from the heap; those seen meanwhile are added
    /// again.
    fn overdue(&mut self, at: ObservedTime) -> Vec<NodeId> {
        let mut silent = Vec::new();
        while let Some(Reverse((end, node))) = self.deadlines.peek().copied() {
            if end >= at {
                break;
            }
            self.deadlines.pop();
            let Some(node_record) = self.node_table.get_mut(node) else { continue };
            if node_record.silent || node_record.deadline != end {
                continue;
            }
            if node_record.heartbeats.grace_ends_at(&self.settings.grace) >= at {
                self.schedule_deadline(node);
            } else {
                node_record.silent = true;
                silent.push(node);
            }
        }
        silent
    }

    /// Updates how a node counts in its zone: ready, not ready (also while it is silent), or not at
    /// all when it is excluded. A silent node whose grace period has been renewed stops being
    /// silent first: its deadline goes back into the heap.
    fn recount(&mut self, node: NodeId, at: ObservedTime) {
        let Some(node_record) = self.node_table.get_mut(node) else { return };
        let ends = node_record.heartbeats.grace_ends_at(&self.settings.grace);
        if node_record.silent && ends >= at {
            self.schedule_deadline(node);
        }
        let Some(node_record) = self.node_table.get_mut(node) else { return };
        let counted = (!node_record.facts.excluded)
            .then(|| node_record.facts.conditions.is_ready() && !node_record.silent);
        self.zones.recount(node_record.zone, node_record.counted, counted);
        node_record.counted = counted;
    }

    /// Labels may move a node to another zone.
    fn update_zone(&mut self, node: NodeId, now: ControllerTime) {
        let Some(node_record) = self.node_table.get(node) else { return };
        if self
            .zones
            .get(node_record.zone)
            .is_some_and(|zone| *zone.key() == node_record.facts.zone)
        {
            return;
        }
        let key = node_record.facts.zone.clone();
        let zone = self.zone(&key, now);
        let Some(node_record) = self.node_table.get_mut(node) else { return };
        self.zones.recount(node_record.zone, node_record.counted, None);
        node_record.zone = zone;
        node_record.counted = None;
    }

    /// A zone's handle. When there are very many zones, empty ones are removed first; one whose
    /// token is spent is kept until the token would be available again.
    fn zone(&mut self, key: &ZoneKey, now: ControllerTime) -> ZoneId {
        if self.zones.is_crowded(key) {
            let used: BTreeSet<ZoneId> = self.node_table.zones().collect();
            let queue = &self.queue;
            let swept = self.zones.sweep(|zone| used.contains(&zone) || !queue.is_idle(zone, now));
            for zone in swept {
                self.queue.forget_zone(zone);
            }
        }
        self.zones.handle(key)
    }

    fn evaluate_zones(
        &mut self,
        now: ControllerTime,
        at: ObservedTime,
        actions: &mut Vec<LifecycleAction>,
    ) {
        let changes = self.zones.evaluate();
        for (zone, rate) in &changes.rates {
            self.queue.set_rate(*zone, *rate, now);
        }
        if changes.blackout_ended {
            for node in self.node_table.ids() {
                if let Some(node_record) = self.node_table.get_mut(node) {
                    node_record.heartbeats.reset_silence(at);
                }
                self.recount(node, at);
            }
        }
        if changes.blackout_began || changes.blackout_ended {
            for node in self.node_table.ids() {
                self.decide(now, node, actions);
            }
        }
    }

    /// Decides what one node needs now.
    fn decide(&mut self, now: ControllerTime, node: NodeId, actions: &mut Vec<LifecycleAction>) {
        let at = self.observation_clock.observed_time();
        let blackout = self.zones.in_blackout();
        let Some(node_record) = self.node_table.get_mut(node) else { return };
        if node_record.conditions_write.is_idle() {
            let found =
                assess(&node_record.heartbeats, &node_record.facts, &self.settings.grace, at, now);
            // A write decided before an absence must not be the first thing done after it.
            if !found.writes.is_empty() && !self.observation_clock.may_act(now) {
                self.deferred.insert(node);
            } else if !found.writes.is_empty() {
                let version = node_record.facts.version;
                actions.push(LifecycleAction::WriteConditions {
                    node,
                    version,
                    writes: found.writes.clone(),
                });
                node_record.conditions_write = Slot::Conditions(found.writes);
                if found.not_ready_transition {
                    node_record.pods = PodMarkState::Unsure;
                }
            }
        }
        if node_record.pods == PodMarkState::Wanted {
            if node_record.facts.conditions.is_ready() {
                node_record.pods = PodMarkState::Settled;
            } else {
                node_record.pods = PodMarkState::InFlight;
                actions.push(LifecycleAction::MarkPodsNotReady { node });
            }
        }
        if node_record.labels_write.is_idle() && !node_record.facts.label_fixes.is_empty() {
            let labels = node_record.facts.label_fixes.clone();
            actions.push(LifecycleAction::SetLabels {
                node,
                version: node_record.facts.version,
                labels,
            });
            node_record.labels_write = Slot::Labels;
        }
        if !node_record.taints_write.is_idle() {
            return;
        }
        let mut patch = no_schedule(&node_record.facts, now);
        match no_execute(&node_record.facts, blackout, now) {
            NoExecuteChange::Settled => {
                self.queue.leave(node);
            }
            // A swap evicts pods that tolerate only the other taint.
            NoExecuteChange::Now(more) if more.evicts() && !self.observation_clock.may_act(now) => {
                self.deferred.insert(node);
            }
            NoExecuteChange::Now(more) => {
                self.queue.leave(node);
                patch = patch.and(more);
            }
            NoExecuteChange::Wait => self.queue.join(node_record.zone, node, now),
        }
        node_record.patch_taints(node, patch, actions);
    }

    /// Grants eviction tokens to queued nodes, unless the controller may not act now.
    fn grant_evictions(&mut self, now: ControllerTime, actions: &mut Vec<LifecycleAction>) {
        if !self.observation_clock.may_act(now) {
            return;
        }
        while let Some((_, node)) = self.queue.due(now) {
            let Some(node_record) = self.node_table.get_mut(node) else {
                self.queue.leave(node);
                continue;
            };
            // A write that is in flight or was refused may take long and must cause no wake-ups.
            // When it ends the node is decided again, and queued again if necessary.
            if !node_record.taints_write.is_idle() {
                self.queue.leave(node);
                continue;
            }
            match eviction_patch(&node_record.facts, now) {
                Some(patch) => {
                    self.queue.take(node, now);
                    node_record.patch_taints(node, patch, actions);
                }
                None => {
                    self.queue.leave(node);
                }
            }
        }
    }
}

fn is_unknown(facts: &NodeHealthFacts) -> bool {
    facts.conditions.status(ConditionKind::Ready) == Some(ConditionState::Unknown)
}

fn is_lost(taint: &crate::facts::Taint) -> bool {
    taint.key.means_lost() && taint.effect == pod_model::TaintEffect::NoExecute
}

#[cfg(test)]
mod tests;
