//! The shell's stand-in: delivers events to the decisions and their writes to the store, delayed,
//! sometimes lost, sometimes without a response. [`super::store`] applies the writes.

use node_health::cidr::fence::{TouchFate, Touched};
use node_health::cidr::{Assignment, Pool, Ranges, WriteFate};
use node_health::health::{PodReadiness, pod_to_be_marked};
use node_health::lifecycle::{Action, NodeLifecycle, Outcome, Settings, Sight, WriteKind};
use node_health::no_execute::{Evictions, Operator, PodAction, PodFacts, Toleration};
use node_health::{Moment, NodeFacts, NodeId, PodId, Truth};

use super::cluster::{Cluster, News, PODS};
use super::dice::Dice;
use super::oracle::Oracle;
use super::store::{self, Author, LAG, Sent, WAY, Write, is_swap};

/// One controller process and its connection.
pub struct Driver {
    lifecycle: NodeLifecycle,
    evictions: Evictions,
    ranges: Ranges,
    under_way: Vec<Sent>,
    /// Which process this is, so that the oracle can tell the writes of two apart.
    instance: u32,
    tolerations: [Vec<Toleration>; PODS],
    pub blind_until: i64,
    pub stalled_until: i64,
    was_blind: bool,
    proven: i64,
    pub dark: bool,
}

fn bears(seconds: Option<i64>) -> Vec<Toleration> {
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

impl Driver {
    /// Starts, and lists everything. `fenced`: an earlier leader may have assigned pod CIDRs.
    pub fn start(
        cluster: &Cluster,
        oracle: &mut Oracle,
        dice: &mut Dice,
        (pool, fenced): (Pool, bool),
        settings: Settings,
    ) -> Self {
        let instance = u32::try_from(oracle.started()).expect("few starts");
        let listed: Vec<(NodeId, &[String])> = (0..)
            .map(NodeId)
            .zip(&cluster.nodes)
            .filter(|(_, node)| node.exists)
            .map(|(id, node)| (id, node.ranges.as_slice()))
            .collect();
        let nodes: Vec<NodeId> = listed.iter().map(|(node, _)| *node).collect();
        let (mut ranges, problems) = Ranges::new(vec![pool], &[], listed);
        if fenced {
            ranges.raise_fence(Moment::from_secs(cluster.now), nodes);
            oracle.report.fences += u64::from(ranges.fence().stands());
        }
        for (_, problem) in problems {
            oracle.told(cluster, &problem);
        }
        let mut driver = Self {
            lifecycle: NodeLifecycle::new(settings),
            evictions: Evictions::new(false),
            ranges,
            under_way: Vec::new(),
            instance,
            tolerations: [bears(Some(300)), bears(Some(30)), bears(None)],
            blind_until: 0,
            stalled_until: 0,
            was_blind: false,
            proven: cluster.now,
            dark: false,
        };
        driver.list(cluster, oracle, dice);
        driver
    }

    pub fn sees(&self, cluster: &Cluster) -> bool {
        cluster.api_is_up() && cluster.now >= self.blind_until && cluster.now >= self.stalled_until
    }

    fn list(&mut self, cluster: &Cluster, oracle: &mut Oracle, dice: &mut Dice) {
        let now = Moment::from_secs(cluster.now);
        for (id, node) in (0..).zip(&cluster.nodes) {
            if !node.exists {
                self.forget(id);
                continue;
            }
            let facts = node.facts.clone();
            let actions = self.observe(cluster, id, facts, Sight::List);
            self.send(cluster, oracle, dice, actions);
            self.lifecycle.lease_seen(now, NodeId(id), node.lease);
            self.range(cluster, oracle, dice, (id, &node.ranges));
        }
        self.proven = cluster.now;
    }

    fn observe(
        &mut self,
        cluster: &Cluster,
        id: u32,
        facts: NodeFacts,
        sight: Sight,
    ) -> Vec<Action> {
        let now = Moment::from_secs(cluster.now);
        let arrives = self.lifecycle.facts(NodeId(id)).is_none();
        let actions = self.lifecycle.observe(now, NodeId(id), facts, sight);
        self.weigh_pods(cluster, id);
        if arrives {
            self.mark_newly_seen(cluster, id);
        }
        actions
    }

    /// Marks pods observed for the first time on a lost node: the previous leader may have died
    /// before it marked them.
    fn mark_newly_seen(&mut self, cluster: &Cluster, id: u32) {
        if self.to_be_marked(cluster, id).next().is_some() {
            self.post(cluster, 1, Write::Marks { id, whole: false });
        }
    }

    fn to_be_marked(&self, cluster: &Cluster, id: u32) -> impl Iterator<Item = usize> + use<> {
        let (pods, claims) = (cluster.node(id).pods, cluster.node(id).pods_ready);
        let node_ready = self.lifecycle.node_ready(NodeId(id));
        (0..PODS).filter(move |pod| {
            let ready = Some(if claims[*pod] { Truth::True } else { Truth::False });
            pods[*pod].is_some() && pod_to_be_marked(PodReadiness { ready, node_ready })
        })
    }

    fn weigh_pods(&mut self, cluster: &Cluster, id: u32) {
        let now = Moment::from_secs(cluster.now);
        let Some(facts) = self.lifecycle.facts(NodeId(id)) else { return };
        let pods = (0..PODS).filter_map(|pod| {
            let bound = cluster.node(id).pods[pod]?;
            Some(PodFacts {
                pod: pod_id(id, pod),
                tolerations: &self.tolerations[pod],
                bound: Some(Moment::from_secs(bound)),
                terminating: false,
            })
        });
        self.evictions.node_seen(now, NodeId(id), facts, pods);
        for pod in (0..PODS).filter(|pod| cluster.node(id).pods[*pod].is_none()) {
            self.evictions.pod_gone(pod_id(id, pod));
        }
    }

    fn forget(&mut self, id: u32) {
        self.lifecycle.forget(NodeId(id));
        self.evictions.node_gone(NodeId(id), (0..PODS).map(|pod| pod_id(id, pod)));
        self.ranges.gone(NodeId(id));
    }

    fn range(
        &mut self,
        cluster: &Cluster,
        oracle: &mut Oracle,
        dice: &mut Dice,
        (id, ranges): (u32, &[String]),
    ) {
        for problem in self.ranges.seen(NodeId(id), ranges) {
            oracle.told(cluster, &problem);
        }
        if ranges.is_empty() {
            self.assign(cluster, dice, id);
        }
    }

    fn assign(&mut self, cluster: &Cluster, dice: &mut Dice, id: u32) {
        if let Assignment::Write(_) = self.ranges.assign(NodeId(id)) {
            self.send_range(cluster, dice, id);
        }
    }

    fn send_range(&mut self, cluster: &Cluster, dice: &mut Dice, id: u32) {
        let version = self.lifecycle.facts(NodeId(id)).map(|facts| facts.version);
        if let (Some(texts), Some(version)) = (self.ranges.pending(NodeId(id)), version) {
            self.post(cluster, dice.between(1, 2), Write::Range { id, version, texts });
        }
    }

    /// Sends the fence's writes, and assigns pod CIDRs once it is open.
    fn carry_fence(&mut self, cluster: &Cluster, dice: &mut Dice) {
        for NodeId(id) in self.ranges.fence_mut().due(Moment::from_secs(cluster.now)) {
            self.send_touch(cluster, dice, id);
        }
        if self.ranges.fence_mut().has_opened() {
            for id in 0..u32::try_from(cluster.nodes.len()).expect("few nodes") {
                // Only nodes that are known, and in their known version.
                if self.lifecycle.facts(NodeId(id)).is_some() {
                    self.assign(cluster, dice, id);
                }
            }
        }
    }

    fn send_touch(&mut self, cluster: &Cluster, dice: &mut Dice, id: u32) {
        if let Some(version) = self.lifecycle.facts(NodeId(id)).map(|facts| facts.version) {
            self.post(cluster, dice.between(1, 2), Write::Touch { id, version });
        }
    }

    /// Handles the outcome of a fence write. Without a response the node is read, as the shell
    /// does.
    fn touch_answered(
        &mut self,
        cluster: &Cluster,
        oracle: &mut Oracle,
        dice: &mut Dice,
        (id, taken, luck): (u32, bool, Luck),
    ) {
        let node = cluster.node(id);
        if !node.exists {
            self.ranges.fence_mut().passes(NodeId(id));
            return;
        }
        let looked = luck.answered || cluster.api_is_up();
        if looked {
            let more = self.observe(cluster, id, node.facts.clone(), Sight::Event);
            self.send(cluster, oracle, dice, more);
            for problem in self.ranges.seen(NodeId(id), &node.ranges) {
                oracle.told(cluster, &problem);
            }
        }
        let fate = match () {
            () if !looked => TouchFate::Unanswered,
            () if taken => TouchFate::Changed,
            () if node.stubborn || !luck.answered => TouchFate::Refused,
            () => TouchFate::Outdated,
        };
        let now = Moment::from_secs(cluster.now);
        let followed = self.ranges.fence_mut().touched(now, NodeId(id), fate);
        oracle.report.fences_given_up += u64::from(followed == Touched::GivenUp);
    }

    fn post(&mut self, cluster: &Cluster, delay: i64, write: Write) {
        let (lands, sent) = (cluster.now + delay, cluster.now);
        let author = Author { instance: self.instance, sent, dead: false };
        self.under_way.push(Sent { lands, author, write });
    }

    /// Its writes in flight when it died.
    pub fn die(self) -> Vec<Sent> {
        self.under_way
    }

    /// Whether a pod CIDR write is in flight: the most dangerous time to die.
    pub fn hands_out_a_range(&self) -> bool {
        self.under_way.iter().any(|sent| matches!(sent.write, Write::Range { .. }))
    }

    /// Simulates one second of the controller.
    pub fn second(&mut self, cluster: &mut Cluster, oracle: &mut Oracle, dice: &mut Dice) {
        self.land(cluster, oracle, dice);
        if cluster.now < self.stalled_until {
            return;
        }
        if !self.sees(cluster) {
            // The watch is interrupted: events in flight are lost.
            self.was_blind = true;
            cluster.news.clear();
        } else if std::mem::take(&mut self.was_blind) {
            cluster.news.clear();
            self.list(cluster, oracle, dice);
        } else {
            let late = cluster.now - dice.between(0, LAG);
            self.read_news(cluster, oracle, dice, late);
        }
        self.carry_fence(cluster, dice);
        let now = Moment::from_secs(cluster.now);
        for _ in 0..2 {
            let actions = self.lifecycle.tick(now, Moment::from_secs(self.proven));
            self.tell_counts(cluster, oracle);
            self.send(cluster, oracle, dice, actions);
        }
        let dark = self.lifecycle.zones().in_blackout();
        if dark != self.dark {
            self.dark = dark;
            oracle.report.blackouts += u64::from(dark);
            oracle.calm_since = cluster.now;
        }
        for action in self.evictions.due(now, self.lifecycle.attention()) {
            if let PodAction::Delete(PodId(number)) = action {
                let (id, pod) = (number / 4, usize::try_from(number % 4).expect("small"));
                let Some(bound) = cluster.node(id).pods[pod] else { continue };
                let write = Write::Pod { id, pod, bound, seen_through: self.proven };
                self.post(cluster, dice.between(0, WAY), write);
            }
        }
    }

    /// Reports the counts of the zone evaluation just done. At the end of a blackout all nodes are
    /// counted again after it, to be evaluated at the next tick.
    fn tell_counts(&self, cluster: &Cluster, oracle: &mut Oracle) {
        let zones = self.lifecycle.zones();
        if zones.await_judgement() {
            return;
        }
        for (number, key) in cluster.keys.iter().enumerate() {
            if let Some((_, zone)) = zones.iter().find(|(_, zone)| zone.key() == key) {
                oracle.judged(cluster, number, (zone.ready(), zone.not_ready()), self.proven);
            }
        }
    }

    fn read_news(
        &mut self,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        dice: &mut Dice,
        until: i64,
    ) {
        let fresh = cluster.news.partition_point(|(when, _)| *when <= until);
        let news: Vec<News> = cluster.news.drain(..fresh).map(|(_, news)| news).collect();
        let now = Moment::from_secs(cluster.now);
        for item in news {
            match item {
                News::Lease(id, stamp) => {
                    oracle.report.renewals += 1;
                    self.lifecycle.lease_seen(now, NodeId(id), stamp);
                }
                News::Node(id, seen) => {
                    if cluster.node(id).exists {
                        let (facts, ranges) = *seen;
                        let actions = self.observe(cluster, id, facts, Sight::Event);
                        self.send(cluster, oracle, dice, actions);
                        self.range(cluster, oracle, dice, (id, &ranges));
                    }
                }
                News::Gone(id) => self.forget(id),
                News::Pod(id) => {
                    self.weigh_pods(cluster, id);
                    self.mark_newly_seen(cluster, id);
                }
            }
        }
        self.proven = self.proven.max(until);
    }

    fn send(
        &mut self,
        cluster: &Cluster,
        oracle: &mut Oracle,
        dice: &mut Dice,
        actions: Vec<Action>,
    ) {
        for action in actions {
            match &action {
                Action::PatchTaints { node, patch, .. } => {
                    if patch.evicts() && !is_swap(patch) {
                        let zone = self.lifecycle.zone_of(*node);
                        let zone =
                            zone.and_then(|zone| self.lifecycle.zones().get(zone)).expect("a zone");
                        oracle.asked_to_give_up(cluster, node.0, (zone.ready(), zone.not_ready()));
                    }
                }
                Action::MarkPodsNotReady { node } => {
                    let marks = Write::Marks { id: node.0, whole: true };
                    self.post(cluster, dice.between(0, WAY), marks);
                    continue;
                }
                Action::Tell { .. } => continue,
                Action::WriteConditions { .. } | Action::SetLabels { .. } => {}
            }
            self.post(cluster, dice.between(0, WAY), Write::Node(action));
        }
    }

    /// Delivers due writes to the store, or loses them.
    fn land(&mut self, cluster: &mut Cluster, oracle: &mut Oracle, dice: &mut Dice) {
        let under_way = std::mem::take(&mut self.under_way);
        let (due, later): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|sent| sent.lands <= cluster.now);
        self.under_way = later;
        for Sent { author, write, .. } in due {
            let arrives = cluster.api_is_up() && !dice.one_in(20);
            let luck = Luck { arrives, answered: arrives && !dice.one_in(40) };
            let fate = if arrives { store::take(cluster, oracle, &write, author) } else { None };
            match write {
                Write::Node(action) => {
                    let more = self.node_answered(cluster, &action, fate.filter(|_| luck.answered));
                    self.send(cluster, oracle, dice, more);
                }
                Write::Range { id, .. } => {
                    self.range_answered(cluster, oracle, dice, (id, fate.is_some(), luck));
                }
                Write::Touch { id, .. } => {
                    self.touch_answered(cluster, oracle, dice, (id, fate.is_some(), luck));
                }
                Write::Pod { id, pod, .. } => {
                    if !luck.arrives {
                        // Due again, as soon as the view is proven up to this time.
                        let now = Moment::from_secs(cluster.now);
                        self.evictions.delete_failed(NodeId(id), pod_id(id, pod), now);
                    }
                }
                Write::Marks { id, whole } => {
                    if whole {
                        let now = Moment::from_secs(cluster.now);
                        self.lifecycle.pods_marked(now, NodeId(id), luck.answered);
                    } else if !luck.answered {
                        self.post(cluster, 1, Write::Marks { id, whole });
                    }
                }
            }
        }
    }

    fn node_answered(
        &mut self,
        cluster: &Cluster,
        action: &Action,
        fate: Option<u64>,
    ) -> Vec<Action> {
        let (node, kind) = match action {
            Action::WriteConditions { node, .. } => (*node, WriteKind::Conditions),
            Action::PatchTaints { node, .. } => (*node, WriteKind::Taints),
            _ => return Vec::new(),
        };
        let outcome = fate.map_or(Outcome::Failed, |version| Outcome::Written { version });
        let more = self.lifecycle.written(Moment::from_secs(cluster.now), node, kind, outcome);
        self.weigh_pods(cluster, node.0);
        more
    }

    /// Handles the outcome of a pod CIDR write. After a conflict the node is read, as the shell
    /// does.
    fn range_answered(
        &mut self,
        cluster: &Cluster,
        oracle: &mut Oracle,
        dice: &mut Dice,
        (id, taken, luck): (u32, bool, Luck),
    ) {
        if !cluster.node(id).exists {
            self.ranges.written(NodeId(id), WriteFate::Refused);
            return;
        }
        if taken && luck.answered {
            self.ranges.written(NodeId(id), WriteFate::Written);
            return;
        }
        self.ranges.written(NodeId(id), WriteFate::Unknown);
        if luck.answered {
            let facts = cluster.node(id).facts.clone();
            let more = self.observe(cluster, id, facts, Sight::Event);
            self.send(cluster, oracle, dice, more);
            for problem in self.ranges.seen(NodeId(id), &cluster.node(id).ranges) {
                oracle.told(cluster, &problem);
            }
        }
        self.send_range(cluster, dice, id);
    }
}

/// Whether a write reaches the store, and whether its response comes back.
#[derive(Clone, Copy)]
struct Luck {
    arrives: bool,
    answered: bool,
}

fn pod_id(node: u32, pod: usize) -> PodId {
    PodId(node * 4 + u32::try_from(pod).expect("small"))
}
