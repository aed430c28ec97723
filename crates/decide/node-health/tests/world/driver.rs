//! The shell's stand-in: delivers events to the decisions and their writes to the store, delayed,
//! sometimes lost, sometimes without a response. [`super::store`] applies the writes.

use node_health::cidr::fence::{TouchEffect, TouchOutcome};
use node_health::cidr::{Assignment, AssignmentOutcome, CidrAllocator, Pool};
use node_health::health::{PodReadiness, must_mark_not_ready};
use node_health::lifecycle::{
    LifecycleAction, NodeLifecycle, NodeLifecycleSettings, ObservationSource, WriteKind,
    WriteOutcome,
};
use node_health::no_execute::{BoundPod, Evictions, Operator, PodAction, Toleration};
use node_health::{ConditionState, ControllerTime, NodeHealthFacts, NodeId, PodId};

use super::cluster::{PODS, SimulatedCluster, WatchEvent};
use super::oracle::{Oracle, ZoneCounts};
use super::rng::SeededRng;
use super::store::{self, Author, SentWrite, SimulatedWrite, WATCH_DELAY, WRITE_DELAY, is_swap};

/// One controller process and its connection.
pub struct Driver {
    lifecycle: NodeLifecycle,
    evictions: Evictions,
    ranges: CidrAllocator,
    under_way: Vec<SentWrite>,
    /// Which process this is, so that the oracle can tell the writes of two apart.
    instance: u32,
    tolerations: [Vec<Toleration>; PODS],
    pub blind_until: i64,
    pub stalled_until: i64,
    was_blind: bool,
    proven: i64,
    pub dark: bool,
}

fn tolerations_of(seconds: Option<i64>) -> Vec<Toleration> {
    vec![Toleration {
        key: None,
        operator: Operator::Exists,
        value: "".into(),
        effect: None,
        seconds,
    }]
}

/// Few enough blocks that they are reused.
pub fn pool(nodes: usize) -> Pool {
    let blocks = (nodes + nodes / 16 + 64).next_power_of_two();
    let mask = u8::try_from(8 + blocks.trailing_zeros()).expect("few nodes");
    Pool::new(&pod_model::parse_cidr("10.0.0.0/8").expect("a network"), mask).expect("a pool")
}

/// The pool of pod CIDRs that a controller starts with.
pub struct FencedPool {
    pub pool: Pool,
    /// Whether an earlier leader may have assigned pod CIDRs.
    pub is_fenced: bool,
}

/// A node's pod CIDRs as observed.
#[derive(Clone, Copy)]
struct NodeRanges<'a> {
    node: u32,
    ranges: &'a [String],
}

/// The outcome of a write to a node.
#[derive(Clone, Copy)]
struct WriteAnswer {
    node: u32,
    /// Whether the store accepted it.
    is_taken: bool,
    delivery: Delivery,
}

impl Driver {
    /// Starts, and lists everything.
    pub fn start(
        cluster: &SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
        pool: FencedPool,
        settings: NodeLifecycleSettings,
    ) -> Self {
        let instance = u32::try_from(oracle.started()).expect("few starts");
        let listed: Vec<(NodeId, &[String])> = (0..)
            .map(NodeId)
            .zip(&cluster.nodes)
            .filter(|(_, node)| node.exists)
            .map(|(id, node)| (id, node.ranges.as_slice()))
            .collect();
        let nodes: Vec<NodeId> = listed.iter().map(|(node, _)| *node).collect();
        let (mut ranges, problems) = CidrAllocator::new(vec![pool.pool], &[], listed);
        if pool.is_fenced {
            ranges.raise_fence(ControllerTime::from_secs(cluster.now), nodes);
            oracle.report.fences += u64::from(ranges.fence().stands());
        }
        for (_, problem) in problems {
            oracle.check_reported_ranges(cluster, &problem);
        }
        let mut driver = Self {
            lifecycle: NodeLifecycle::new(settings),
            evictions: Evictions::new(false),
            ranges,
            under_way: Vec::new(),
            instance,
            tolerations: [
                tolerations_of(Some(300)),
                tolerations_of(Some(30)),
                tolerations_of(None),
            ],
            blind_until: 0,
            stalled_until: 0,
            was_blind: false,
            proven: cluster.now,
            dark: false,
        };
        driver.list(cluster, oracle, rng);
        driver
    }

    pub fn sees(&self, cluster: &SimulatedCluster) -> bool {
        cluster.api_is_up() && cluster.now >= self.blind_until && cluster.now >= self.stalled_until
    }

    fn list(&mut self, cluster: &SimulatedCluster, oracle: &mut Oracle, rng: &mut SeededRng) {
        let now = ControllerTime::from_secs(cluster.now);
        for (id, node) in (0..).zip(&cluster.nodes) {
            if !node.exists {
                self.forget(id);
                continue;
            }
            let facts = node.facts.clone();
            let actions = self.observe(cluster, id, facts, ObservationSource::List);
            self.send(cluster, oracle, rng, actions);
            self.lifecycle.observe_lease(now, NodeId(id), node.lease);
            self.range(cluster, oracle, rng, NodeRanges { node: id, ranges: &node.ranges });
        }
        self.proven = cluster.now;
    }

    fn observe(
        &mut self,
        cluster: &SimulatedCluster,
        id: u32,
        facts: NodeHealthFacts,
        source: ObservationSource,
    ) -> Vec<LifecycleAction> {
        let now = ControllerTime::from_secs(cluster.now);
        let arrives = self.lifecycle.facts(NodeId(id)).is_none();
        let actions = self.lifecycle.observe(now, NodeId(id), facts, source);
        self.weigh_pods(cluster, id);
        if arrives {
            self.mark_newly_seen(cluster, id);
        }
        actions
    }

    /// Marks pods observed for the first time on a lost node: the previous leader may have died
    /// before it marked them.
    fn mark_newly_seen(&mut self, cluster: &SimulatedCluster, id: u32) {
        if self.to_be_marked(cluster, id).next().is_some() {
            self.post(cluster, 1, SimulatedWrite::Marks { id, whole: false });
        }
    }

    fn to_be_marked(
        &self,
        cluster: &SimulatedCluster,
        id: u32,
    ) -> impl Iterator<Item = usize> + use<> {
        let (pods, claims) = (cluster.node(id).pods, cluster.node(id).pods_ready);
        let node_ready = self.lifecycle.node_ready(NodeId(id));
        (0..PODS).filter(move |pod| {
            let ready =
                Some(if claims[*pod] { ConditionState::True } else { ConditionState::False });
            pods[*pod].is_some() && must_mark_not_ready(PodReadiness { ready, node_ready })
        })
    }

    fn weigh_pods(&mut self, cluster: &SimulatedCluster, id: u32) {
        let now = ControllerTime::from_secs(cluster.now);
        let Some(facts) = self.lifecycle.facts(NodeId(id)) else { return };
        let pods = (0..PODS).filter_map(|pod| {
            let bound = cluster.node(id).pods[pod]?;
            Some(BoundPod {
                pod: pod_id(id, pod),
                tolerations: &self.tolerations[pod],
                bound: Some(ControllerTime::from_secs(bound)),
                terminating: false,
            })
        });
        self.evictions.observe_node(now, NodeId(id), facts, pods);
        for pod in (0..PODS).filter(|pod| cluster.node(id).pods[*pod].is_none()) {
            self.evictions.on_pod_deleted(pod_id(id, pod));
        }
    }

    fn forget(&mut self, id: u32) {
        self.lifecycle.forget(NodeId(id));
        self.evictions.on_node_deleted(NodeId(id), (0..PODS).map(|pod| pod_id(id, pod)));
        self.ranges.gone(NodeId(id));
    }

    fn range(
        &mut self,
        cluster: &SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
        observed: NodeRanges<'_>,
    ) {
        for problem in self.ranges.seen(NodeId(observed.node), observed.ranges) {
            oracle.check_reported_ranges(cluster, &problem);
        }
        if observed.ranges.is_empty() {
            self.assign(cluster, rng, observed.node);
        }
    }

    fn assign(&mut self, cluster: &SimulatedCluster, rng: &mut SeededRng, id: u32) {
        if let Assignment::Write(_) = self.ranges.assign(NodeId(id)) {
            self.send_range(cluster, rng, id);
        }
    }

    fn send_range(&mut self, cluster: &SimulatedCluster, rng: &mut SeededRng, id: u32) {
        let version = self.lifecycle.facts(NodeId(id)).map(|facts| facts.version);
        if let (Some(texts), Some(version)) = (self.ranges.pending(NodeId(id)), version) {
            self.post(cluster, rng.between(1, 2), SimulatedWrite::Range { id, version, texts });
        }
    }

    /// Sends the fence's writes, and assigns pod CIDRs once it is open.
    fn carry_fence(&mut self, cluster: &SimulatedCluster, rng: &mut SeededRng) {
        for NodeId(id) in self.ranges.fence_mut().due(ControllerTime::from_secs(cluster.now)) {
            self.send_touch(cluster, rng, id);
        }
        if self.ranges.fence_mut().has_opened() {
            for id in 0..u32::try_from(cluster.nodes.len()).expect("few nodes") {
                // Only nodes that are known, and in their known version.
                if self.lifecycle.facts(NodeId(id)).is_some() {
                    self.assign(cluster, rng, id);
                }
            }
        }
    }

    fn send_touch(&mut self, cluster: &SimulatedCluster, rng: &mut SeededRng, id: u32) {
        if let Some(version) = self.lifecycle.facts(NodeId(id)).map(|facts| facts.version) {
            self.post(cluster, rng.between(1, 2), SimulatedWrite::Touch { id, version });
        }
    }

    /// Handles the outcome of a fence write. Without a response the node is read, as the shell
    /// does.
    fn touch_answered(
        &mut self,
        cluster: &SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
        answer: WriteAnswer,
    ) {
        let WriteAnswer { node: id, is_taken, delivery } = answer;
        let node = cluster.node(id);
        if !node.exists {
            self.ranges.fence_mut().passes(NodeId(id));
            return;
        }
        let looked = delivery.answered || cluster.api_is_up();
        if looked {
            let more = self.observe(cluster, id, node.facts.clone(), ObservationSource::Event);
            self.send(cluster, oracle, rng, more);
            for problem in self.ranges.seen(NodeId(id), &node.ranges) {
                oracle.check_reported_ranges(cluster, &problem);
            }
        }
        let result = match () {
            () if !looked => TouchOutcome::NoResponse,
            () if is_taken => TouchOutcome::Changed,
            () if node.stubborn || !delivery.answered => TouchOutcome::Refused,
            () => TouchOutcome::Outdated,
        };
        let now = ControllerTime::from_secs(cluster.now);
        let followed = self.ranges.fence_mut().touched(now, NodeId(id), result);
        oracle.report.fences_abandoned += u64::from(followed == TouchEffect::Abandoned);
    }

    fn post(&mut self, cluster: &SimulatedCluster, delay: i64, write: SimulatedWrite) {
        let (lands, sent) = (cluster.now + delay, cluster.now);
        let author = Author { instance: self.instance, sent, dead: false };
        self.under_way.push(SentWrite { lands, author, write });
    }

    /// Its writes in flight when it died.
    pub fn die(self) -> Vec<SentWrite> {
        self.under_way
    }

    /// Whether a pod CIDR write is in flight: the most dangerous time to die.
    pub fn hands_out_a_range(&self) -> bool {
        self.under_way.iter().any(|sent| matches!(sent.write, SimulatedWrite::Range { .. }))
    }

    /// Simulates one second of the controller.
    pub fn second(
        &mut self,
        cluster: &mut SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
    ) {
        self.complete(cluster, oracle, rng);
        if cluster.now < self.stalled_until {
            return;
        }
        if !self.sees(cluster) {
            // The watch is interrupted: events in flight are lost.
            self.was_blind = true;
            cluster.watch_events.clear();
        } else if std::mem::take(&mut self.was_blind) {
            cluster.watch_events.clear();
            self.list(cluster, oracle, rng);
        } else {
            let late = cluster.now - rng.between(0, WATCH_DELAY);
            self.read_watch_events(cluster, oracle, rng, late);
        }
        self.carry_fence(cluster, rng);
        let now = ControllerTime::from_secs(cluster.now);
        for _ in 0..2 {
            let actions = self.lifecycle.tick(now, ControllerTime::from_secs(self.proven));
            self.report_counts(cluster, oracle);
            self.send(cluster, oracle, rng, actions);
        }
        let dark = self.lifecycle.zones().in_blackout();
        if dark != self.dark {
            self.dark = dark;
            oracle.report.blackouts += u64::from(dark);
            oracle.calm_since = cluster.now;
        }
        for action in self.evictions.due(now, self.lifecycle.observation_clock()) {
            if let PodAction::Delete(PodId(number)) = action {
                let (id, pod) = (number / 4, usize::try_from(number % 4).expect("small"));
                let Some(bound) = cluster.node(id).pods[pod] else { continue };
                let write = SimulatedWrite::Pod { id, pod, bound, seen_through: self.proven };
                self.post(cluster, rng.between(0, WRITE_DELAY), write);
            }
        }
    }

    /// Reports the counts of the zone evaluation just done. At the end of a blackout all nodes are
    /// counted again after it, to be evaluated at the next tick.
    fn report_counts(&self, cluster: &SimulatedCluster, oracle: &mut Oracle) {
        let zones = self.lifecycle.zones();
        if zones.needs_evaluation() {
            return;
        }
        for (number, key) in cluster.keys.iter().enumerate() {
            if let Some((_, zone)) = zones.iter().find(|(_, zone)| zone.key() == key) {
                let counts = ZoneCounts { ready: zone.ready(), not_ready: zone.not_ready() };
                oracle.judged(cluster, number, counts, self.proven);
            }
        }
    }

    fn read_watch_events(
        &mut self,
        cluster: &mut SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
        until: i64,
    ) {
        let fresh = cluster.watch_events.partition_point(|(when, _)| *when <= until);
        let watch_events: Vec<WatchEvent> =
            cluster.watch_events.drain(..fresh).map(|(_, watch_events)| watch_events).collect();
        let now = ControllerTime::from_secs(cluster.now);
        for item in watch_events {
            match item {
                WatchEvent::Lease(id, stamp) => {
                    oracle.report.renewals += 1;
                    self.lifecycle.observe_lease(now, NodeId(id), stamp);
                }
                WatchEvent::SimulatedNode(id, seen) => {
                    if cluster.node(id).exists {
                        let (facts, ranges) = *seen;
                        let actions = self.observe(cluster, id, facts, ObservationSource::Event);
                        self.send(cluster, oracle, rng, actions);
                        self.range(cluster, oracle, rng, NodeRanges { node: id, ranges: &ranges });
                    }
                }
                WatchEvent::Gone(id) => self.forget(id),
                WatchEvent::Pod(id) => {
                    self.weigh_pods(cluster, id);
                    self.mark_newly_seen(cluster, id);
                }
            }
        }
        self.proven = self.proven.max(until);
    }

    fn send(
        &mut self,
        cluster: &SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
        actions: Vec<LifecycleAction>,
    ) {
        for action in actions {
            match &action {
                LifecycleAction::PatchTaints { node, patch, .. } => {
                    if patch.evicts() && !is_swap(patch) {
                        let zone = self.lifecycle.zone_of(*node);
                        let zone =
                            zone.and_then(|zone| self.lifecycle.zones().get(zone)).expect("a zone");
                        let counts =
                            ZoneCounts { ready: zone.ready(), not_ready: zone.not_ready() };
                        oracle.no_execute_requested(cluster, node.0, counts);
                    }
                }
                LifecycleAction::MarkPodsNotReady { node } => {
                    let marks = SimulatedWrite::Marks { id: node.0, whole: true };
                    self.post(cluster, rng.between(0, WRITE_DELAY), marks);
                    continue;
                }
                LifecycleAction::EmitEvent { .. } => continue,
                LifecycleAction::WriteConditions { .. } | LifecycleAction::SetLabels { .. } => {}
            }
            self.post(cluster, rng.between(0, WRITE_DELAY), SimulatedWrite::SimulatedNode(action));
        }
    }

    /// Delivers due writes to the store, or loses them.
    fn complete(
        &mut self,
        cluster: &mut SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
    ) {
        let under_way = std::mem::take(&mut self.under_way);
        let (due, later): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|sent| sent.lands <= cluster.now);
        self.under_way = later;
        for SentWrite { author, write, .. } in due {
            let arrives = cluster.api_is_up() && !rng.one_in(20);
            let delivery = Delivery { arrives, answered: arrives && !rng.one_in(40) };
            let result = if arrives { store::take(cluster, oracle, &write, author) } else { None };
            match write {
                SimulatedWrite::SimulatedNode(action) => {
                    let more =
                        self.node_answered(cluster, &action, result.filter(|_| delivery.answered));
                    self.send(cluster, oracle, rng, more);
                }
                SimulatedWrite::Range { id, .. } => {
                    let answer = WriteAnswer { node: id, is_taken: result.is_some(), delivery };
                    self.range_answered(cluster, oracle, rng, answer);
                }
                SimulatedWrite::Touch { id, .. } => {
                    let answer = WriteAnswer { node: id, is_taken: result.is_some(), delivery };
                    self.touch_answered(cluster, oracle, rng, answer);
                }
                SimulatedWrite::Pod { id, pod, .. } => {
                    if !delivery.arrives {
                        // Due again, as soon as the view is proven up to this time.
                        let now = ControllerTime::from_secs(cluster.now);
                        self.evictions.delete_failed(NodeId(id), pod_id(id, pod), now);
                    }
                }
                SimulatedWrite::Marks { id, whole } => {
                    if whole {
                        let now = ControllerTime::from_secs(cluster.now);
                        self.lifecycle.pods_marked(now, NodeId(id), delivery.answered);
                    } else if !delivery.answered {
                        self.post(cluster, 1, SimulatedWrite::Marks { id, whole });
                    }
                }
            }
        }
    }

    fn node_answered(
        &mut self,
        cluster: &SimulatedCluster,
        action: &LifecycleAction,
        result: Option<u64>,
    ) -> Vec<LifecycleAction> {
        let (node, kind) = match action {
            LifecycleAction::WriteConditions { node, .. } => (*node, WriteKind::Conditions),
            LifecycleAction::PatchTaints { node, .. } => (*node, WriteKind::Taints),
            _ => return Vec::new(),
        };
        let outcome =
            result.map_or(WriteOutcome::Failed, |version| WriteOutcome::Written { version });
        let more =
            self.lifecycle.written(ControllerTime::from_secs(cluster.now), node, kind, outcome);
        self.weigh_pods(cluster, node.0);
        more
    }

    /// Handles the outcome of a pod CIDR write. After a conflict the node is read, as the shell
    /// does.
    fn range_answered(
        &mut self,
        cluster: &SimulatedCluster,
        oracle: &mut Oracle,
        rng: &mut SeededRng,
        answer: WriteAnswer,
    ) {
        let WriteAnswer { node: id, is_taken, delivery } = answer;
        if !cluster.node(id).exists {
            self.ranges.written(NodeId(id), AssignmentOutcome::Refused);
            return;
        }
        if is_taken && delivery.answered {
            self.ranges.written(NodeId(id), AssignmentOutcome::Written);
            return;
        }
        self.ranges.written(NodeId(id), AssignmentOutcome::Unknown);
        if delivery.answered {
            let facts = cluster.node(id).facts.clone();
            let more = self.observe(cluster, id, facts, ObservationSource::Event);
            self.send(cluster, oracle, rng, more);
            for problem in self.ranges.seen(NodeId(id), &cluster.node(id).ranges) {
                oracle.check_reported_ranges(cluster, &problem);
            }
        }
        self.send_range(cluster, rng, id);
    }
}

/// Whether a write reaches the store, and whether its response comes back.
#[derive(Clone, Copy)]
struct Delivery {
    arrives: bool,
    answered: bool,
}

fn pod_id(node: u32, pod: usize) -> PodId {
    PodId(node * 4 + u32::try_from(pod).expect("small"))
}
