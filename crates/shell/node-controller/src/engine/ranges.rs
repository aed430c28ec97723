//! Pod ranges: told to the decision as they are seen, written where it says so.

use node_health::NodeId;
use node_health::cidr::{Assignment, Problem, Ranges};
use node_health::health::NodeEvent;
use ports::cluster_objects::Node;
use tracing::warn;

use super::Engine;
use super::acting::RANGES;
use super::queue::Pending;
use crate::convert;
use crate::counters::RangeNow;
use crate::events::{About, Said};

impl Engine {
    fn hands_out_ranges(&self) -> bool {
        !self.shared.checked.pools.is_empty()
    }

    /// Once all nodes are known, ranges may be handed out.
    pub(super) fn begin_ranges(&mut self) {
        if self.ranges.is_some() || !self.hands_out_ranges() {
            return;
        }
        let checked = &self.shared.checked;
        let service = checked.config.ranges.as_ref().map_or(&[][..], |ranges| &ranges.service);
        let listed = std::mem::take(&mut self.listed_ranges);
        let known = listed.iter().map(|(node, texts)| (*node, texts.as_slice()));
        let (ranges, problems) = Ranges::new(checked.pools.clone(), service, known);
        self.ranges = Some(ranges);
        for (node, problem) in problems {
            self.tell_range_problem(node, &problem);
        }
        for node in self.nodes() {
            self.assign_range(node);
        }
    }

    pub(super) fn see_range(&mut self, id: NodeId, node: &Node) {
        if !self.hands_out_ranges() {
            return;
        }
        let texts = convert::ranges(node);
        let Some(ranges) = &mut self.ranges else {
            self.listed_ranges.insert(id, texts.to_vec());
            return;
        };
        if texts.is_empty() {
            if self.is_ending(id) {
                self.without_range.remove(&id);
            }
            self.assign_range(id);
            return;
        }
        self.without_range.remove(&id);
        for problem in ranges.seen(id, texts) {
            self.tell_range_problem(id, &problem);
        }
    }

    /// A node that is about to go gets no range. upstream: nodeipam/ipam/range_allocator.go
    pub(super) fn is_ending(&self, node: NodeId) -> bool {
        self.names.known(node).is_some_and(|known| known.terminating)
    }

    fn assign_range(&mut self, node: NodeId) {
        if self.is_ending(node) {
            return;
        }
        let Some(ranges) = &mut self.ranges else { return };
        match ranges.assign(node) {
            Assignment::Write(_) => {
                self.without_range.remove(&node);
                self.queue.push(Pending::Range(node));
            }
            Assignment::Settled => {}
            Assignment::Exhausted { cluster } => {
                if self.without_range.insert(node) {
                    let name = self.names.name(node).map_or("", |name| name);
                    warn!(node = name, cluster, "No pod range is left for a node");
                    self.tell_node(node, NodeEvent::CidrNotAvailable);
                }
            }
        }
    }

    /// A node is gone; whoever waits may have its range.
    pub(super) fn lose_range(&mut self, node: NodeId) {
        self.without_range.remove(&node);
        self.listed_ranges.remove(&node);
        let Some(ranges) = &mut self.ranges else { return };
        let held: Vec<u32> = ranges.pools().iter().map(node_health::cidr::Pool::taken).collect();
        ranges.gone(node);
        for (pool, before) in ranges.pools().iter().zip(held) {
            if pool.taken() < before {
                self.shared.counters.range_released(pool.cluster());
            }
        }
        if let Some(waiting) = self.without_range.first().copied() {
            self.assign_range(waiting);
        }
    }

    fn tell_range_problem(&self, node: NodeId, problem: &Problem) {
        let (Some(name), Some(known)) = (self.names.name(node), self.names.known(node)) else {
            return;
        };
        let mut message = problem.to_string();
        if let Problem::Clash { with, .. } = problem
            && let Some(other) = self.names.name(*with)
        {
            message = format!("{message}: {other}");
        }
        warn!(node = &**name, problem = message, "A node's pod ranges are not as they should be");
        let about = About::node(name, &known.uid.to_string());
        self.shared.events.tell(about, Said::warning(RANGES, "CIDRConflict", message));
    }

    pub(super) fn ranges_now(&self) -> Vec<RangeNow> {
        let pools = self.ranges.as_ref().map_or(&[][..], |ranges| ranges.pools());
        let now = |pool: &node_health::cidr::Pool| RangeNow {
            cluster: pool.cluster().to_owned(),
            size: pool.size(),
            taken: pool.taken(),
        };
        pools.iter().map(now).collect()
    }
}
