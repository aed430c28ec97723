//! What is kept per node: its facts, its heartbeats, and its writes in flight.
//!
//! A write in flight is kept whole, so that its effect can be applied when it succeeds, without
//! waiting for the watch. Decides nothing.

use crate::attention::Attended;
use crate::facts::{NodeFacts, NodeId};
use crate::health::{ConditionWrite, LifeSigns};
use crate::lifecycle::{Action, WriteKind};
use crate::taints::TaintPatch;
use crate::zones::ZoneId;

/// A write of one kind: none, or in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Slot {
    #[default]
    Idle,
    Conditions(Vec<ConditionWrite>),
    Taints(TaintPatch),
    Labels,
}

impl Slot {
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::Idle
    }

    /// Takes the write out of flight.
    pub(super) fn land(&mut self) -> Option<Self> {
        (!self.is_idle()).then(|| std::mem::take(self))
    }

    /// Applies what the write changed in the object.
    pub(super) fn apply_to(&self, facts: &mut NodeFacts) {
        match self {
            Self::Idle => {}
            Self::Conditions(writes) => {
                for write in writes {
                    facts.conditions.set(write.kind, Some(write.condition));
                }
            }
            Self::Taints(patch) => facts.taints = patch.apply(&facts.taints),
            Self::Labels => facts.label_fixes.clear(),
        }
    }
}

/// How far the marking of a node's pods is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodMarks {
    Settled,
    /// The write from Ready to not ready was sent and its result is unknown: the response, or if
    /// that is lost the next observation of the node, will show it.
    Unsure,
    Wanted,
    InFlight,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) facts: NodeFacts,
    pub(super) signs: LifeSigns,
    pub(super) zone: ZoneId,
    /// How it counts in its zone: ready, not ready, or not at all.
    pub(super) counted: Option<bool>,
    /// Its entry in the heap of deadlines; other entries of it are stale.
    pub(super) deadline: Attended,
    /// Its grace period is over; it has no deadline in the heap.
    pub(super) silent: bool,
    /// Whether its pods have to be marked as not ready.
    pub(super) pods: PodMarks,
    pub(super) conditions_write: Slot,
    pub(super) taints_write: Slot,
    pub(super) labels_write: Slot,
}

impl Record {
    pub(super) fn new(facts: NodeFacts, signs: LifeSigns, zone: ZoneId) -> Self {
        Self {
            facts,
            signs,
            zone,
            counted: None,
            deadline: Attended::default(),
            silent: false,
            pods: PodMarks::Settled,
            conditions_write: Slot::Idle,
            taints_write: Slot::Idle,
            labels_write: Slot::Idle,
        }
    }

    pub(super) fn slot(&mut self, kind: WriteKind) -> &mut Slot {
        match kind {
            WriteKind::Conditions => &mut self.conditions_write,
            WriteKind::Taints => &mut self.taints_write,
            WriteKind::Labels => &mut self.labels_write,
        }
    }

    /// Resolves an unknown transition to not ready; returns true once, if it happened.
    pub(super) fn settle_fall(&mut self, fell: bool) -> bool {
        if self.pods != PodMarks::Unsure {
            return false;
        }
        self.pods = if fell { PodMarks::Wanted } else { PodMarks::Settled };
        fell
    }

    pub(super) fn patch_taints(
        &mut self,
        node: NodeId,
        patch: TaintPatch,
        actions: &mut Vec<Action>,
    ) {
        if patch.is_empty() {
            return;
        }
        let version = self.facts.version;
        actions.push(Action::PatchTaints { node, version, patch: patch.clone() });
        self.taints_write = Slot::Taints(patch);
    }
}

/// All nodes, by handle. Handles are dense, so a `Vec` serves best.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster(Vec<Option<Box<Record>>>);

impl Roster {
    pub(super) fn get(&self, node: NodeId) -> Option<&Record> {
        self.0.get(place(node))?.as_deref()
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut Record> {
        self.0.get_mut(place(node))?.as_deref_mut()
    }

    pub(super) fn insert(&mut self, node: NodeId, record: Record) {
        let place = place(node);
        if self.0.len() <= place {
            self.0.resize_with(place.saturating_add(1), || None);
        }
        if let Some(slot) = self.0.get_mut(place) {
            *slot = Some(Box::new(record));
        }
    }

    pub(super) fn remove(&mut self, node: NodeId) -> Option<Record> {
        self.0.get_mut(place(node))?.take().map(|record| *record)
    }

    /// The zone of each node.
    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.0.iter().flatten().map(|record| record.zone)
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        (0..)
            .map(NodeId)
            .zip(&self.0)
            .filter(|(_, record)| record.is_some())
            .map(|(id, _)| id)
            .collect()
    }
}

fn place(node: NodeId) -> usize {
    usize::try_from(node.0).unwrap_or(usize::MAX)
}
