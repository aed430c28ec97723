//! Pod CIDRs: which node has which block, and which block is allocated next.
//!
//! One or two cluster CIDRs are each cut into blocks of one size. A node gets one block of every
//! cluster CIDR, in order, continuing after the last one and wrapping around, as upstream. The
//! CIDRs that nodes already have are recorded before the first allocation, and the service CIDR is
//! excluded. A block has holders and is free only when the last one is gone, so two nodes with the
//! same CIDR (others may write it too) are reported and never become three. A write with an unknown
//! outcome keeps its block. Writes that an earlier leader may still have in flight are fenced off
//! first ([`fence`]). upstream: nodeipam/ipam

use std::collections::BTreeMap;

use pod_model::{Cidr, parse_cidr};

use crate::facts::NodeId;
use crate::time::ControllerTime;

pub mod fence;
mod pool;
use fence::Fence;
pub use pool::{Block, Pool, PoolError};

/// What is wrong with a node's pod CIDRs. Reported, never fatal: one bad node does not stop the
/// rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeCidrError {
    /// Not a CIDR.
    #[error("pod range {text:?} is no network; expected something like \"10.1.2.0/24\"")]
    Malformed { text: String },
    /// More CIDRs than cluster CIDRs.
    #[error("pod range {text} is number {number}, but there are only {pools} cluster ranges")]
    TooMany { text: String, number: usize, pools: usize },
    /// Not within the cluster CIDR at the same index.
    #[error("pod range {text} lies outside the cluster range {cluster}")]
    Outside { text: String, cluster: String },
    /// Equals or overlaps another node's CIDR.
    #[error("pod range {text} overlaps with a range of another node")]
    Overlap { text: String, with: NodeId },
}

/// Allocation result for a node without pod CIDRs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// These CIDRs, one per cluster CIDR, to be written if the node still has none.
    Write(Vec<String>),
    /// Nothing to do: the node has CIDRs, or a write is in flight.
    Settled,
    /// Not before the fence opens.
    Fenced,
    /// A cluster CIDR has no free block; to be reported as an event.
    Exhausted {
        /// Which cluster CIDR.
        cluster: String,
    },
}

/// Outcome of the write of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignmentOutcome {
    /// The node has the CIDRs.
    Written,
    /// The API server refused it: the blocks are free again.
    Refused,
    /// Unknown: the blocks stay with the node until it is observed.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeAllocation {
    blocks: Vec<Block>,
    /// Written or observed on the node; otherwise the write is in flight.
    settled: bool,
}

/// All cluster CIDRs and the holders of their blocks.
#[derive(Clone, Debug)]
pub struct CidrAllocator {
    pools: Vec<Pool>,
    allocations: BTreeMap<NodeId, NodeAllocation>,
    fence: Fence,
}

impl CidrAllocator {
    /// Excludes the service CIDRs and records the CIDRs that nodes already have. `nodes` must be
    /// complete: no block may be allocated before.
    pub fn new<'a>(
        pools: Vec<Pool>,
        service_ranges: &[Cidr],
        nodes: impl IntoIterator<Item = (NodeId, &'a [String])>,
    ) -> (Self, Vec<(NodeId, NodeCidrError)>) {
        let mut ranges = Self { pools, allocations: BTreeMap::new(), fence: Fence::default() };
        for service in service_ranges {
            for pool in &mut ranges.pools {
                pool.exclude(service);
            }
        }
        let mut problems = Vec::new();
        for (node, texts) in nodes {
            problems.extend(ranges.seen(node, texts).into_iter().map(|problem| (node, problem)));
        }
        (ranges, problems)
    }

    /// Fences off, before the first allocation, those of these nodes that have no CIDR: an earlier
    /// leader may still have writes to them in flight.
    pub fn raise_fence(&mut self, now: ControllerTime, nodes: impl IntoIterator<Item = NodeId>) {
        let without = nodes.into_iter().filter(|node| !self.allocations.contains_key(node));
        self.fence = Fence::around(now, without);
    }

    /// The fence.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The fence, to be updated with the outcomes of its writes.
    pub fn fence_mut(&mut self) -> &mut Fence {
        &mut self.fence
    }

    /// Records the CIDRs a node was observed with. They count, whatever was assigned to it.
    pub fn seen(&mut self, node: NodeId, texts: &[String]) -> Vec<NodeCidrError> {
        if texts.is_empty() {
            return Vec::new();
        }
        self.fence.passes(node);
        let mut problems = Vec::new();
        let mut blocks = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            match self.locate(number, text) {
                Ok(block) => blocks.push(block),
                Err(problem) => problems.push(problem),
            }
        }
        let known = self.allocations.get(&node);
        let changed =
            known.is_none_or(|allocation| !allocation.settled || allocation.blocks != blocks);
        if changed {
            self.release_allocation(node);
            for block in &blocks {
                self.add_holder(node, block, &mut problems);
            }
        } else {
            // Already reported when first observed; every heartbeat shows the same CIDRs again.
            problems.clear();
        }
        // A node with an unparsable CIDR still has one: it gets no other.
        self.allocations.insert(node, NodeAllocation { blocks, settled: true });
        problems
    }

    fn locate(&self, number: usize, text: &str) -> Result<Block, NodeCidrError> {
        let owned = || text.to_owned();
        let cidr = parse_cidr(text).map_err(|_| NodeCidrError::Malformed { text: owned() })?;
        let pool = self.pools.get(number).ok_or_else(|| NodeCidrError::TooMany {
            text: owned(),
            number: number + 1,
            pools: self.pools.len(),
        })?;
        let (first, last) = pool.blocks_of(&cidr).ok_or_else(|| NodeCidrError::Outside {
            text: owned(),
            cluster: pool.cluster().to_owned(),
        })?;
        Ok(Block { pool: number, first, last })
    }

    fn add_holder(&mut self, node: NodeId, block: &Block, problems: &mut Vec<NodeCidrError>) {
        let Some(pool) = self.pools.get_mut(block.pool) else { return };
        if let Some(with) = pool.add_holder(node, block) {
            let text = pool.text(block);
            problems.push(NodeCidrError::Overlap { text, with });
        }
    }

    fn release_allocation(&mut self, node: NodeId) {
        let Some(allocation) = self.allocations.remove(&node) else { return };
        for block in &allocation.blocks {
            if let Some(pool) = self.pools.get_mut(block.pool) {
                pool.remove_holder(node, block);
            }
        }
    }

    /// Allocates CIDRs for a node that was observed without any.
    pub fn assign(&mut self, node: NodeId) -> Assignment {
        if self.holds(node) {
            return Assignment::Settled;
        }
        if self.fence.stands() {
            return Assignment::Fenced;
        }
        let mut blocks = Vec::new();
        for number in 0..self.pools.len() {
            let found = self.pools.get_mut(number).and_then(|pool| pool.next_free(number, node));
            match found {
                Some(block) => blocks.push(block),
                None => {
                    // All or nothing: release the CIDRs allocated so far.
                    self.allocations.insert(node, NodeAllocation { blocks, settled: false });
                    self.release_allocation(node);
                    let cluster =
                        self.pools.get(number).map_or("", |pool| pool.cluster()).to_owned();
                    return Assignment::Exhausted { cluster };
                }
            }
        }
        let texts = blocks
            .iter()
            .filter_map(|block| self.pools.get(block.pool).map(|pool| pool.text(block)))
            .collect();
        self.allocations.insert(node, NodeAllocation { blocks, settled: false });
        Assignment::Write(texts)
    }

    /// Records the outcome of the write.
    pub fn written(&mut self, node: NodeId, outcome: AssignmentOutcome) {
        match outcome {
            AssignmentOutcome::Written => {
                if let Some(allocation) = self.allocations.get_mut(&node) {
                    allocation.settled = true;
                }
            }
            AssignmentOutcome::Refused => {
                if self.allocations.get(&node).is_some_and(|allocation| !allocation.settled) {
                    self.release_allocation(node);
                }
            }
            AssignmentOutcome::Unknown => {}
        }
    }

    /// The CIDRs of a write with an unknown outcome, to be written again unchanged.
    pub fn pending(&self, node: NodeId) -> Option<Vec<String>> {
        let allocation = self.allocations.get(&node).filter(|allocation| !allocation.settled)?;
        let text = |block: &Block| self.pools.get(block.pool).map(|pool| pool.text(block));
        Some(allocation.blocks.iter().filter_map(text).collect())
    }

    /// Whether a node has CIDRs, or a write of some is in flight.
    pub fn holds(&self, node: NodeId) -> bool {
        self.allocations.contains_key(&node)
    }

    /// Records that a node is gone. Its blocks become free unless another node holds them too.
    pub fn gone(&mut self, node: NodeId) {
        self.fence.passes(node);
        self.release_allocation(node);
    }

    /// The cluster CIDRs, for metrics.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }
}

#[cfg(test)]
mod tests;
