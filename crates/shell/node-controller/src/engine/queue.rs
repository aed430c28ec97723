//! Queued writes, most urgent first.
//!
//! Rule: the queue holds only handles; a request is built from current state when it is sent, and
//! dropped if it no longer applies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use node_health::lifecycle::LifecycleAction;
use node_health::pod_cleanup::ForceDelete;
use node_health::{ControllerTime, NodeId, PodId};

use crate::uid::Uid;
use crate::writes::cloud::CloudAnswer;

/// A pod to evict, and its deadline.
pub(crate) type Due = (PodId, Uid, ControllerTime);

/// A queued request.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    LifecycleAction(LifecycleAction),
    Range(NodeId),
    /// Fence a node before pod CIDRs are assigned.
    Touch(NodeId),
    /// Mark a pod that was bound to a node which is not ready.
    MarkPod(PodId, Uid),
    /// Mark more pods of a node that became not ready.
    MarkMore(NodeId),
    Evict(NodeId, Vec<Due>),
    Clear(ForceDelete<PodId>, Uid),
    /// Apply the cloud's answer.
    Cloud(NodeId, Box<CloudAnswer>),
}

impl Pending {
    /// The node whose object it writes.
    pub(crate) fn writes_to(&self) -> Option<NodeId> {
        match self {
            Self::LifecycleAction(
                LifecycleAction::WriteConditions { node, .. }
                | LifecycleAction::PatchTaints { node, .. }
                | LifecycleAction::SetLabels { node, .. },
            )
            | Self::Range(node)
            | Self::Touch(node)
            | Self::Cloud(node, _) => Some(*node),
            Self::LifecycleAction(_)
            | Self::MarkPod(..)
            | Self::MarkMore(_)
            | Self::Evict(..)
            | Self::Clear(..) => None,
        }
    }

    fn urgency(&self) -> usize {
        match self {
            Self::LifecycleAction(
                LifecycleAction::WriteConditions { .. } | LifecycleAction::PatchTaints { .. },
            ) => 0,
            Self::Evict(..) | Self::Range(_) => 1,
            Self::LifecycleAction(_) | Self::Touch(_) | Self::MarkPod(..) | Self::MarkMore(_) => 2,
            Self::Clear(..) | Self::Cloud(..) => 3,
        }
    }
}

/// Writes to one node are sequential: in parallel they would only conflict.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: [VecDeque<Pending>; 4],
    busy: BTreeSet<NodeId>,
    behind: BTreeMap<NodeId, VecDeque<Pending>>,
}

impl WriteQueue {
    pub(crate) fn push(&mut self, pending: Pending) {
        if let Some(queue) = self.waiting.get_mut(pending.urgency()) {
            queue.push_back(pending);
        }
    }

    /// The next request whose node is not busy; the node is busy from here on, until `free`.
    pub(crate) fn pop(&mut self) -> Option<Pending> {
        while let Some(pending) = self.waiting.iter_mut().find_map(VecDeque::pop_front) {
            let Some(node) = pending.writes_to() else { return Some(pending) };
            if self.busy.insert(node) {
                return Some(pending);
            }
            self.behind.entry(node).or_default().push_back(pending);
        }
        None
    }

    /// The write to this node has ended, or was not sent.
    pub(crate) fn free(&mut self, node: NodeId) {
        self.busy.remove(&node);
        for pending in self.behind.remove(&node).unwrap_or_default() {
            self.push(pending);
        }
    }

    /// Whether no request can be sent now; some may be waiting behind a busy node.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests;
