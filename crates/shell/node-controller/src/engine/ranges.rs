//! Pod CIDRs: passes observations to the allocator, and sends its writes.
//!
//! Rule: the first list of a term is read past all caches, and after the term began; so it has
//! every node that an earlier leader can have known, and those without a pod CIDR are the ones to
//! fence.

use node_health::cidr::fence::{TouchEffect, TouchOutcome};
use node_health::cidr::{Assignment, CidrAllocator, NodeCidrError};
use node_health::health::NodeHealthEvent;
use node_health::lifecycle::ObservationSource as Seen;
use node_health::{ControllerTime, NodeId};
use ports::cluster_objects::Node;
use tracing::{info, warn};

use super::Engine;
use super::dispatch::RANGE_COMPONENT;
use super::queue::Pending;
use crate::api_gate::RequestError;
use crate::convert;
use crate::counters::RangeGauge;
use crate::events::{EventObject, EventText};
use crate::writes::{NodeTarget, Write};

/// How many nodes are named; the rest are only counted.
const MAX_NAMES: usize = 10;

impl Engine {
    fn hands_out_ranges(&self) -> bool {
        !self.shared.checked.pools.is_empty()
    }

    /// Starts assigning pod CIDRs once all nodes are known. An unparsable node may have any CIDR,
    /// and an earlier leader may have a write to it in flight: until it parses or is gone, no node
    /// gets a CIDR.
    pub(super) fn begin_ranges(&mut self) {
        if self.ranges.is_some() || !self.hands_out_ranges() || !self.node_list.complete {
            return;
        }
        if let Some(nodes) = self.unreadable_node_names() {
            warn!(nodes, "Some nodes cannot be parsed, so no pod range is assigned to any node");
            return;
        }
        let checked = &self.shared.checked;
        let service = checked.config.ranges.as_ref().map_or(&[][..], |ranges| &ranges.service);
        let listed = std::mem::take(&mut self.listed_ranges);
        let known = listed.iter().map(|(node, texts)| (*node, texts.as_slice()));
        let (ranges, problems) = CidrAllocator::new(checked.pools.clone(), service, known);
        self.ranges = Some(ranges);
        for (node, problem) in problems {
            self.record_range_error(node, &problem);
        }
        if !self.is_first {
            self.raise_fence();
        }
        self.hand_out_ranges();
    }

    /// The unparsable nodes of the first list, if any.
    fn unreadable_node_names(&self) -> Option<String> {
        let named = |name: &str| match name {
            "" => "one without a name".to_owned(),
            name => name.to_owned(),
        };
        let some = self.unread_nodes.keys().take(MAX_NAMES);
        let mut names: Vec<String> = some.map(|name| named(name)).collect();
        let more = self.unread_nodes.len() - names.len();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Why a node has no pod CIDR while no node gets any.
    pub(super) fn range_wait_reason(&self, node: NodeId) -> Option<String> {
        let waits = self.hands_out_ranges() && self.ranges.is_none() && !self.is_ending(node);
        let has_one = self.listed_ranges.get(&node).is_some_and(|ranges| !ranges.is_empty());
        let unread = self.unreadable_node_names().filter(|_| waits && !has_one)?;
        Some(format!(
            "No pod range is handed out to anybody: there are nodes that cannot be read, and nobody \
            knows which ranges they have: {unread}."
        ))
    }

    fn hand_out_ranges(&mut self) {
        for node in self.nodes() {
            self.assign_range(node);
        }
    }

    /// Fences the nodes without a pod CIDR: an earlier leader's writes to them may still arrive.
    fn raise_fence(&mut self) {
        let now = self.now();
        let mut nodes = self.nodes();
        nodes.retain(|node| !self.is_ending(*node));
        let Some(ranges) = &mut self.ranges else { return };
        ranges.raise_fence(now, nodes);
        if let Some(outlook) = ranges.fence().outlook() {
            info!(
                nodes = outlook.left,
                "Writing to each node without a pod range once, before any range is assigned"
            );
        }
    }

    /// Sends the fence's writes, and assigns pod CIDRs once it is open.
    pub(super) fn carry_fence(&mut self, now: ControllerTime) {
        let Some(ranges) = &mut self.ranges else { return };
        for node in ranges.fence_mut().due(now) {
            self.queue.push(Pending::Touch(node));
        }
        if ranges.fence_mut().has_opened() {
            info!("Writes of earlier leaders can no longer assign a pod range");
            self.hand_out_ranges();
        }
    }

    pub(super) fn fence_wake(&self) -> Option<ControllerTime> {
        self.ranges.as_ref()?.fence().next_wake()
    }

    pub(super) fn prepare_touch(&self, node: NodeId) -> Option<Write> {
        if !self.ranges.as_ref()?.fence().awaits(node) {
            return None;
        }
        // A new value each time: a patch without a change makes no new version.
        let (wall, number) = (self.shared.clock.wall(), self.shared.clock.random());
        let value = format!("{}/{number:016x}", wall.to_seconds_text());
        Some(Write::Touch { target: self.target(node)?, value })
    }

    /// Handles the outcome of a fence write.
    pub(super) fn touched(
        &mut self,
        now: ControllerTime,
        target: &NodeTarget,
        outcome: Result<bool, RequestError>,
        fresh: Option<Box<Node>>,
    ) {
        if !self.is_current(target) {
            return;
        }
        let seen = fresh.is_some();
        if let Some(fresh) = fresh {
            self.upsert_node(&fresh, Seen::Event);
        }
        let Some(ranges) = &mut self.ranges else { return };
        let fate = match &outcome {
            Ok(true) => TouchOutcome::Changed,
            Err(failure) if failure.is_gone() => {
                ranges.fence_mut().passes(target.node);
                return;
            }
            Err(failure) if failure.is_conflict() && seen => TouchOutcome::Outdated,
            Err(failure) if !seen && !failure.is_answer() => TouchOutcome::NoResponse,
            Ok(false) | Err(_) => TouchOutcome::Refused,
        };
        let followed = ranges.fence_mut().touched(now, target.node, fate);
        if followed == TouchEffect::Passed {
            return;
        }
        let problem = match outcome {
            Err(failure) => failure.to_string(),
            Ok(_) => "the node did not change".to_owned(),
        };
        let name = &*target.name;
        if followed == TouchEffect::Abandoned {
            warn!(node = name, problem, "A node cannot be fenced; pod ranges are assigned anyway");
            let message = format!(
                "Cannot be written to, so a pod range that an earlier leader had sent to it could \
                still arrive: {problem}"
            );
            let about = EventObject::node(name, &target.uid.to_string());
            self.shared
                .events
                .record(about, EventText::warning(RANGE_COMPONENT, "CIDRFenceFailed", message));
        } else if fate != TouchOutcome::Outdated {
            warn!(node = name, problem, "Failed to fence a node; no pod range is assigned yet");
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
                if let Some(ranges) = &mut self.ranges {
                    ranges.fence_mut().passes(id);
                }
            }
            self.assign_range(id);
            return;
        }
        self.without_range.remove(&id);
        for problem in ranges.seen(id, texts) {
            self.record_range_error(id, &problem);
        }
    }

    /// Whether a node is terminating and so gets no pod CIDR. upstream:
    /// nodeipam/ipam/range_allocator.go
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
            Assignment::Settled | Assignment::Fenced => {}
            Assignment::Exhausted { cluster } => {
                if self.without_range.insert(node) {
                    let name = self.names.name(node).map_or("", |name| name);
                    warn!(node = name, cluster, "No pod range is left for a node");
                    self.record_node_event(node, NodeHealthEvent::CidrNotAvailable);
                }
            }
        }
    }

    /// Releases the pod CIDRs of a node that is gone; a waiting node may get them.
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

    fn record_range_error(&self, node: NodeId, problem: &NodeCidrError) {
        let (Some(name), Some(known)) = (self.names.name(node), self.names.known(node)) else {
            return;
        };
        let mut message = problem.to_string();
        if let NodeCidrError::Overlap { with, .. } = problem
            && let Some(other) = self.names.name(*with)
        {
            message = format!("{message}: {other}");
        }
        warn!(node = &**name, problem = message, "A node's pod ranges are wrong");
        let about = EventObject::node(name, &known.uid.to_string());
        self.shared
            .events
            .record(about, EventText::warning(RANGE_COMPONENT, "CIDRConflict", message));
    }

    pub(super) fn ranges_now(&self) -> Vec<RangeGauge> {
        let pools = self.ranges.as_ref().map_or(&[][..], |ranges| ranges.pools());
        let now = |pool: &node_health::cidr::Pool| RangeGauge {
            cluster: pool.cluster().to_owned(),
            size: pool.size(),
            taken: pool.taken(),
        };
        pools.iter().map(now).collect()
    }
}
