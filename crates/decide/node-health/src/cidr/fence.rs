//! The fence after a change of leader: writes of an earlier leader can no longer assign a pod CIDR.
//!
//! The write of a pod CIDR is guarded only by its node's resource version: a dead leader's write
//! for one node may be accepted just when its successor assigns the same CIDR to another node. But
//! the dead leader's write carries a resource version from before this leader's term. So this
//! leader changes each node without a CIDR once at the start of its term; from then on the API
//! server rejects writes with an older version. The first CIDR is assigned only when every such
//! node has passed the fence: changed by this leader, or observed with a CIDR, deleted, or
//! terminating. A node that joins later needs no fencing: no earlier leader can have known it.
//!
//! A node that cannot be written does not block all others for ever: when the API server has
//! answered for [`FENCE_TIMEOUT`] without accepting the write, the node is abandoned and that is
//! reported. No API server works on a request for that long; what remains is a request delayed
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::NodeId;
use crate::time::ControllerTime;

/// How long a node that cannot be written delays all pod CIDRs: twice as long as an API server
/// works on a request (`--request-timeout`, one minute).
pub const FENCE_TIMEOUT: Duration = Duration::from_secs(120);
const INITIAL_BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(15);
/// After this many attempts a conflict is no longer retried at once: another client writes the node
/// faster than this one.
const MAX_QUICK_RETRIES: u32 = 5;

/// Outcome of a fence write: the write that changes a node to give it a new resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// The node has a version made by this leader.
    Changed,
    /// The write conflicted with a newer version, which has been read since.
    Outdated,
    /// The API server answered this request, or the read after it, without accepting the write.
    Refused,
    /// No response at all.
    NoResponse,
}

/// What follows from a fence write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchEffect {
    /// The node has passed the fence, or had passed before.
    Passed,
    /// The write will be retried.
    Again,
    /// The node was retried for [`FENCE_TIMEOUT`]: CIDRs are assigned without waiting for it. The
    /// caller reports this.
    Abandoned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FenceTarget {
    tries: u32,
    /// Since when the API server has answered without accepting the write.
    refused_since: Option<ControllerTime>,
    /// When the write is sent next; `None` while one is in flight.
    due: Option<ControllerTime>,
}

/// Progress of the fence, for `explain` and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceSummary {
    /// How many nodes are still to be changed.
    pub left: usize,
    /// How many of those have failed writes.
    pub failing: usize,
    /// When the last node whose writes are answered but not accepted will be abandoned.
    pub grace_ends_at: Option<ControllerTime>,
}

/// The fence: the nodes that have not passed it yet.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    targets: BTreeMap<NodeId, FenceTarget>,
    due: BTreeSet<(ControllerTime, NodeId)>,
    opened: bool,
}

impl Fence {
    /// A fence for `nodes`: all nodes without a CIDR in the first complete list of this term.
    pub fn around(now: ControllerTime, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let target = FenceTarget { due: Some(now), ..FenceTarget::default() };
        let targets: BTreeMap<NodeId, FenceTarget> =
            nodes.into_iter().map(|node| (node, target)).collect();
        let due = targets.keys().map(|node| (now, *node)).collect();
        Self { targets, due, opened: false }
    }

    /// Whether the fence still blocks CIDR assignment.
    pub fn stands(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Whether this node is still to be changed.
    pub fn awaits(&self, node: NodeId) -> bool {
        self.targets.contains_key(&node)
    }

    /// Nodes to write now; they count as in flight from here on.
    pub fn due(&mut self, now: ControllerTime) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        while let Some((when, node)) = self.due.first().copied().filter(|(when, _)| *when <= now) {
            self.due.remove(&(when, node));
            if let Some(target) = self.targets.get_mut(&node) {
                target.due = None;
                nodes.push(node);
            }
        }
        nodes
    }

    /// When `due` next returns a node.
    pub fn next_wake(&self) -> Option<ControllerTime> {
        self.due.first().map(|(when, _)| *when)
    }

    /// Records the outcome of the write to a node.
    pub fn touched(
        &mut self,
        now: ControllerTime,
        node: NodeId,
        outcome: TouchOutcome,
    ) -> TouchEffect {
        let Some(target) = self.targets.get_mut(&node) else { return TouchEffect::Passed };
        target.tries = target.tries.saturating_add(1);
        match outcome {
            TouchOutcome::Changed => {
                self.passes(node);
                return TouchEffect::Passed;
            }
            // An API server that does not respond may still be working on old requests.
            TouchOutcome::NoResponse => target.refused_since = None,
            TouchOutcome::Outdated | TouchOutcome::Refused => {
                let since = *target.refused_since.get_or_insert(now);
                if now.since(since) >= FENCE_TIMEOUT {
                    self.passes(node);
                    return TouchEffect::Abandoned;
                }
            }
        }
        let quick = outcome == TouchOutcome::Outdated && target.tries < MAX_QUICK_RETRIES;
        let back_off =
            INITIAL_BACK_OFF.saturating_mul(1 << (target.tries - 1).min(8)).min(MAX_BACK_OFF);
        let when = if quick { now } else { now.after(back_off) };
        if let Some(before) = target.due.replace(when) {
            self.due.remove(&(before, node));
        }
        self.due.insert((when, node));
        TouchEffect::Again
    }

    /// Removes a node from the fence: it has a CIDR, was deleted, or is terminating. The version of
    /// a terminating node is newer than any for which a leader would have assigned a CIDR.
    pub fn passes(&mut self, node: NodeId) {
        let Some(target) = self.targets.remove(&node) else { return };
        if let Some(when) = target.due {
            self.due.remove(&(when, node));
        }
        self.opened |= self.targets.is_empty();
    }

    /// Whether the last node has passed since the previous call.
    pub fn has_opened(&mut self) -> bool {
        std::mem::take(&mut self.opened)
    }

    /// Progress; `None` once CIDRs may be assigned.
    pub fn outlook(&self) -> Option<FenceSummary> {
        let failing = self.targets.values().filter(|target| target.tries > 0);
        let ends =
            failing.clone().filter_map(|target| Some(target.refused_since?.after(FENCE_TIMEOUT)));
        self.stands().then(|| FenceSummary {
            left: self.targets.len(),
            failing: failing.count(),
            grace_ends_at: ends.max(),
        })
    }
}

#[cfg(test)]
mod tests;
