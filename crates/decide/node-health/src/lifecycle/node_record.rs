//! What is kept per node: its facts, its heartbeats, and its writes in flight.
//!
//! A write in flight is kept whole, so that its effect can be applied when it succeeds, without
//! waiting for the watch. Decides nothing.

use crate::facts::{NodeHealthFacts, NodeId};
use crate::health::{ConditionWrite, NodeHeartbeats};
use crate::lifecycle::{LifecycleAction, WriteKind};
use crate::observation_clock::ObservedTime;
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
    pub(super) fn complete(&mut self) -> Option<Self> {
        (!self.is_idle()).then(|| std::mem::take(self))
    }

    /// Applies what the write changed in the object.
    pub(super) fn apply_to(&self, facts: &mut NodeHealthFacts) {
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
pub(super) enum PodMarkState {
    Settled,
    /// The write from Ready to not ready was sent and its result is unknown: the response, or if
    /// that is lost the next observation of the node, will show it.
    Unsure,
    Wanted,
    InFlight,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct NodeRecord {
    pub(super) facts: NodeHealthFacts,
    pub(super) heartbeats: NodeHeartbeats,
    pub(super) zone: ZoneId,
    /// How it counts in its zone: ready, not ready, or not at all.
    pub(super) counted: Option<bool>,
    /// Its entry in the heap of deadlines; other entries of it are stale.
    pub(super) deadline: ObservedTime,
    /// Its grace period is over; it has no deadline in the heap.
    pub(super) silent: bool,
    /// Whether its pods have to be marked as not ready.
    pub(super) pods: PodMarkState,
    pub(super) conditions_write: Slot,
    pub(super) taints_write: Slot,
    pub(super) labels_write: Slot,
}

impl NodeRecord {
    pub(super) fn new(facts: NodeHealthFacts, heartbeats: NodeHeartbeats, zone: ZoneId) -> Self {
        Self {
            facts,
            heartbeats,
            zone,
            counted: None,
            deadline: ObservedTime::default(),
            silent: false,
            pods: PodMarkState::Settled,
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
    pub(super) fn resolve_not_ready_transition(&mut self, fell: bool) -> bool {
        if self.pods != PodMarkState::Unsure {
            return false;
        }
        self.pods = if fell { PodMarkState::Wanted } else { PodMarkState::Settled };
        fell
    }

    pub(super) fn patch_taints(
        &mut self,
        node: NodeId,
        patch: TaintPatch,
        actions: &mut Vec<LifecycleAction>,
    ) {
        if patch.is_empty() {
            return;
        }
        let version = self.facts.version;
        actions.push(LifecycleAction::PatchTaints { node, version, patch: patch.clone() });
        self.taints_write = Slot::Taints(patch);
    }
}

/// All nodes, by handle. Handles are dense, so a `Vec` serves best.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeTable(Vec<Option<Box<NodeRecord>>>);

impl NodeTable {
    pub(super) fn get(&self, node: NodeId) -> Option<&NodeRecord> {
        self.0.get(index(node))?.as_deref()
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut NodeRecord> {
        self.0.get_mut(index(node))?.as_deref_mut()
    }

    pub(super) fn insert(&mut self, node: NodeId, record: NodeRecord) {
        let index = index(node);
        if self.0.len() <= index {
            self.0.resize_with(index.saturating_add(1), || None);
        }
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Some(Box::new(record));
        }
    }

    pub(super) fn remove(&mut self, node: NodeId) -> Option<NodeRecord> {
        self.0.get_mut(index(node))?.take().map(|record| *record)
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

fn index(node: NodeId) -> usize {
    usize::try_from(node.0).unwrap_or(usize::MAX)
}
