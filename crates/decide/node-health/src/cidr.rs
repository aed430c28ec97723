//! Pod ranges: which node has which, and which is handed out next.
//!
//! One or two cluster ranges are cut into blocks of one size each. A node gets one block of every
//! cluster range; blocks are handed out in order, going on from the last and around, as upstream.
//! What nodes already have is taken note of before the first block is handed out, and the service
//! range is left out. A block has holders: it is free only when the last holder is gone, so two
//! nodes with one range (others may write too) are told of and never become three. A write whose
//! fate is unknown keeps its block. What an earlier leader may still have on its way is fenced off
//! first ([`fence`]). upstream: nodeipam/ipam

use std::collections::BTreeMap;

use pod_model::{Cidr, parse_cidr};

use crate::facts::NodeId;
use crate::time::Moment;

pub mod fence;
mod pool;
use fence::Fence;
pub use pool::{Block, Pool, PoolError};

/// What is wrong with a node's ranges. Told, never fatal: one bad node does not stop the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a range.
    #[error("pod range {text:?} is no network; expected something like \"10.1.2.0/24\"")]
    Malformed { text: String },
    /// More ranges than cluster ranges.
    #[error("pod range {text} is number {number}, but there are only {pools} cluster ranges")]
    TooMany { text: String, number: usize, pools: usize },
    /// Not within the cluster range of its place.
    #[error("pod range {text} lies outside the cluster range {cluster}")]
    Outside { text: String, cluster: String },
    /// Another node has it, or a part of it, as well.
    #[error("pod range {text} overlaps with a range of another node")]
    Clash { text: String, with: NodeId },
}

/// What a node without ranges gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// These ranges, one per cluster range, to be written if the node still has none.
    Write(Vec<String>),
    /// Nothing to do: it has ranges, or a write is on its way.
    Settled,
    /// Not before the fence has opened.
    Fenced,
    /// A cluster range has no block left; to be told as an event.
    Exhausted {
        /// Which cluster range.
        cluster: String,
    },
}

/// What became of the write of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    /// It is there.
    Written,
    /// It was refused: the blocks are free again.
    Refused,
    /// Nobody knows: the blocks stay with the node until it is seen.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding {
    blocks: Vec<Block>,
    /// Written or seen on the node; otherwise on its way.
    settled: bool,
}

/// All cluster ranges and who holds what.
#[derive(Clone, Debug)]
pub struct Ranges {
    pools: Vec<Pool>,
    holdings: BTreeMap<NodeId, Holding>,
    fence: Fence,
}

impl Ranges {
    /// Takes note of the service ranges and of what nodes already have. Give all nodes there are:
    /// nothing may be handed out before.
    pub fn new<'a>(
        pools: Vec<Pool>,
        service_ranges: &[Cidr],
        nodes: impl IntoIterator<Item = (NodeId, &'a [String])>,
    ) -> (Self, Vec<(NodeId, Problem)>) {
        let mut ranges = Self { pools, holdings: BTreeMap::new(), fence: Fence::default() };
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

    /// Before the first range is handed out, where an earlier leader may have had writes on their way:
    /// these nodes, of those without a range, are fenced off from it.
    pub fn raise_fence(&mut self, now: Moment, nodes: impl IntoIterator<Item = NodeId>) {
        let without = nodes.into_iter().filter(|node| !self.holdings.contains_key(node));
        self.fence = Fence::around(now, without);
    }

    /// The fence.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The fence, to be told what became of its writes.
    pub fn fence_mut(&mut self) -> &mut Fence {
        &mut self.fence
    }

    /// A node was seen with these ranges. What it has counts, whatever we meant to give it.
    pub fn seen(&mut self, node: NodeId, texts: &[String]) -> Vec<Problem> {
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
        let known = self.holdings.get(&node);
        let news = known.is_none_or(|holding| !holding.settled || holding.blocks != blocks);
        if news {
            self.drop_holding(node);
            for block in &blocks {
                self.hold(node, block, &mut problems);
            }
        } else {
            // Told when it was first seen so; a node says the same with every heartbeat.
            problems.clear();
        }
        // Even one whose ranges we cannot read has ranges: it gets no others.
        self.holdings.insert(node, Holding { blocks, settled: true });
        problems
    }

    fn locate(&self, number: usize, text: &str) -> Result<Block, Problem> {
        let owned = || text.to_owned();
        let cidr = parse_cidr(text).map_err(|_| Problem::Malformed { text: owned() })?;
        let pool = self.pools.get(number).ok_or_else(|| Problem::TooMany {
            text: owned(),
            number: number + 1,
            pools: self.pools.len(),
        })?;
        let (first, last) = pool.blocks_of(&cidr).ok_or_else(|| Problem::Outside {
            text: owned(),
            cluster: pool.cluster().to_owned(),
        })?;
        Ok(Block { pool: number, first, last })
    }

    fn hold(&mut self, node: NodeId, block: &Block, problems: &mut Vec<Problem>) {
        let Some(pool) = self.pools.get_mut(block.pool) else { return };
        if let Some(with) = pool.hold(node, block) {
            let text = pool.text(block);
            problems.push(Problem::Clash { text, with });
        }
    }

    fn drop_holding(&mut self, node: NodeId) {
        let Some(holding) = self.holdings.remove(&node) else { return };
        for block in &holding.blocks {
            if let Some(pool) = self.pools.get_mut(block.pool) {
                pool.drop_holder(node, block);
            }
        }
    }

    /// Finds ranges for a node that was seen without any.
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
                    // All or nothing: the ranges found so far go back.
                    self.holdings.insert(node, Holding { blocks, settled: false });
                    self.drop_holding(node);
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
        self.holdings.insert(node, Holding { blocks, settled: false });
        Assignment::Write(texts)
    }

    /// What became of the write.
    pub fn written(&mut self, node: NodeId, fate: WriteFate) {
        match fate {
            WriteFate::Written => {
                if let Some(holding) = self.holdings.get_mut(&node) {
                    holding.settled = true;
                }
            }
            WriteFate::Refused => {
                if self.holdings.get(&node).is_some_and(|holding| !holding.settled) {
                    self.drop_holding(node);
                }
            }
            WriteFate::Unknown => {}
        }
    }

    /// The ranges that a write whose fate is unknown was to bring: write them again, as they are.
    pub fn pending(&self, node: NodeId) -> Option<Vec<String>> {
        let holding = self.holdings.get(&node).filter(|holding| !holding.settled)?;
        let text = |block: &Block| self.pools.get(block.pool).map(|pool| pool.text(block));
        Some(holding.blocks.iter().filter_map(text).collect())
    }

    /// Whether a node has ranges, or is being given some.
    pub fn holds(&self, node: NodeId) -> bool {
        self.holdings.contains_key(&node)
    }

    /// A node is gone; its blocks are free unless another node holds them too.
    pub fn gone(&mut self, node: NodeId) {
        self.fence.passes(node);
        self.drop_holding(node);
    }

    /// The cluster ranges, for metrics.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }
}

#[cfg(test)]
mod tests;
