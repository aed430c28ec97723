//! Node names and their handles: one entry per name that a node or a pod uses.
//!
//! Rule: an entry's index is the node's handle for the decisions. A node that is created again
//! under its name gets a new incarnation, so that outcomes for the old node are not taken for the
//! new one's. An unused entry is reused for the next name, so the indices stay dense.

use std::collections::HashMap;
use std::sync::Arc;

use node_health::{NodeId, PodId};

use crate::uid::Uid;

/// A node that exists.
#[derive(Clone, Debug)]
pub(crate) struct KnownNode {
    pub(crate) uid: Uid,
    /// The list in which it was last seen.
    pub(crate) list: u32,
    /// The resource version as the API server wrote it, if that is not a number.
    pub(crate) odd_version: Option<Box<str>>,
    /// It has a taint that does not parse: its taints are not written.
    pub(crate) odd_taints: bool,
    /// It has a deletion timestamp.
    pub(crate) terminating: bool,
}

#[derive(Debug)]
struct NameSlot {
    name: Arc<str>,
    node: Option<KnownNode>,
    incarnation: u32,
    pods: Vec<PodId>,
}

/// The name table.
#[derive(Debug, Default)]
pub(crate) struct NodeNames {
    numbers: HashMap<Arc<str>, u32>,
    name_slots: Vec<Option<NameSlot>>,
    free: Vec<u32>,
    incarnations: u32,
    nodes: usize,
}

impl NodeNames {
    fn name_slot(&self, node: NodeId) -> Option<&NameSlot> {
        self.name_slots.get(usize::try_from(node.0).ok()?)?.as_ref()
    }

    fn name_slot_mut(&mut self, node: NodeId) -> Option<&mut NameSlot> {
        self.name_slots.get_mut(usize::try_from(node.0).ok()?)?.as_mut()
    }

    /// The handle of a name, new or known.
    pub(crate) fn handle(&mut self, name: &str) -> NodeId {
        if let Some(number) = self.numbers.get(name) {
            return NodeId(*number);
        }
        let name: Arc<str> = name.into();
        let name_slot =
            NameSlot { name: name.clone(), node: None, incarnation: 0, pods: Vec::new() };
        let number = self.free.pop().unwrap_or_else(|| {
            self.name_slots.push(None);
            u32::try_from(self.name_slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = self.name_slots.get_mut(usize::try_from(number).unwrap_or(usize::MAX)) {
            *slot = Some(name_slot);
        }
        self.numbers.insert(name, number);
        NodeId(number)
    }

    pub(crate) fn find(&self, name: &str) -> Option<NodeId> {
        self.numbers.get(name).copied().map(NodeId)
    }

    pub(crate) fn name(&self, node: NodeId) -> Option<&Arc<str>> {
        self.name_slot(node).map(|name_slot| &name_slot.name)
    }

    pub(crate) fn known(&self, node: NodeId) -> Option<&KnownNode> {
        self.name_slot(node)?.node.as_ref()
    }

    pub(crate) fn known_mut(&mut self, node: NodeId) -> Option<&mut KnownNode> {
        self.name_slot_mut(node)?.node.as_mut()
    }

    /// The incarnation; changes when a node is created again.
    pub(crate) fn incarnation(&self, node: NodeId) -> Option<u32> {
        let name_slot = self.name_slot(node)?;
        name_slot.node.as_ref().map(|_| name_slot.incarnation)
    }

    /// Records that a node of this name exists.
    pub(crate) fn arrive(&mut self, node: NodeId, known: KnownNode) {
        self.incarnations = self.incarnations.wrapping_add(1);
        let incarnation = self.incarnations;
        let Some(name_slot) = self.name_slot_mut(node) else { return };
        let is_new = name_slot.node.replace(known).is_none();
        name_slot.incarnation = incarnation;
        self.nodes += usize::from(is_new);
    }

    /// Records that the node of this name is gone; pods may still name it.
    pub(crate) fn depart(&mut self, node: NodeId) -> Option<KnownNode> {
        let known = self.name_slot_mut(node)?.node.take()?;
        self.nodes = self.nodes.saturating_sub(1);
        self.tidy(node);
        Some(known)
    }

    /// Pods that name this node.
    pub(crate) fn pods(&self, node: NodeId) -> &[PodId] {
        self.name_slot(node).map_or(&[], |name_slot| &name_slot.pods)
    }

    pub(crate) fn add_pod(&mut self, node: NodeId, pod: PodId) {
        if let Some(name_slot) = self.name_slot_mut(node) {
            name_slot.pods.push(pod);
        }
    }

    pub(crate) fn remove_pod(&mut self, node: NodeId, pod: PodId) {
        if let Some(name_slot) = self.name_slot_mut(node) {
            if let Some(at) = name_slot.pods.iter().position(|known| *known == pod) {
                name_slot.pods.swap_remove(at);
            }
            if name_slot.pods.capacity() > 4 * name_slot.pods.len().max(4) {
                name_slot.pods.shrink_to_fit();
            }
        }
        self.tidy(node);
    }

    fn tidy(&mut self, node: NodeId) {
        let unused = self.name_slot(node).is_some_and(|it| it.node.is_none() && it.pods.is_empty());
        let Ok(at) = usize::try_from(node.0) else { return };
        if unused && let Some(name_slot) = self.name_slots.get_mut(at).and_then(Option::take) {
            self.numbers.remove(&name_slot.name);
            self.free.push(node.0);
        }
    }

    /// Handles of all nodes that exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let exists =
            |name_slot: &Option<NameSlot>| name_slot.as_ref().is_some_and(|it| it.node.is_some());
        (0..).map(NodeId).zip(&self.name_slots).filter(move |(_, it)| exists(it)).map(|(id, _)| id)
    }

    /// Nodes that were not in this list.
    pub(crate) fn not_in_list(&self, list: u32) -> Vec<NodeId> {
        let old = |node: &NodeId| self.known(*node).is_some_and(|known| known.list != list);
        self.nodes().filter(old).collect()
    }

    /// Up to `most` nodes, continuing from an index and wrapping around; and the index to continue
    /// from.
    pub(crate) fn some(&self, from: usize, most: usize) -> (Vec<NodeId>, usize) {
        let count = self.name_slots.len();
        let mut found = Vec::new();
        for step in 0..count {
            let at = (from + step) % count;
            let node = NodeId(u32::try_from(at).unwrap_or(u32::MAX));
            if self.known(node).is_some() {
                found.push(node);
            }
            if found.len() == most {
                return (found, at + 1);
            }
        }
        (found, 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes
    }
}

#[cfg(test)]
mod tests;
