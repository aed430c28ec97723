//! What stands where the shell will: carries news to the decisions and their writes to the store,
//! late, sometimes in vain, sometimes without an answer.

use node_health::cidr::{Assignment, Pool, Ranges, WriteFate};
use node_health::health::{PodReadiness, pod_to_be_marked};
use node_health::lifecycle::{Action, NodeLifecycle, Outcome, Settings, Sight, WriteKind};
use node_health::no_execute::{Evictions, Operator, PodAction, PodFacts, Toleration};
use node_health::{Moment, NodeFacts, NodeId, PodId, Truth};

use super::cluster::{Cluster, News, PODS};
use super::dice::Dice;
use super::oracle::Oracle;

/// A write on its way.
enum Write {
    Node(Action),
    Range(u32),
    Pod(u32, usize),
    /// The pods of a node are not ready; `whole`: because it fell.
    Marks {
        id: u32,
        whole: bool,
    },
}

/// One controller process and its connection.
pub struct Driver {
    lifecycle: NodeLifecycle,
    evictions: Evictions,
    ranges: Ranges,
    under_way: Vec<(i64, Write)>,
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

/// Just enough blocks, so that they are used again.
pub fn pool(nodes: usize) -> Pool {
    let blocks = (nodes + nodes / 16 + 64).next_power_of_two();
    let mask = u8::try_from(8 + blocks.trailing_zeros()).expect("few nodes");
    Pool::new(&pod_model::parse_cidr("10.0.0.0/8").expect("a network"), mask).expect("a pool")
}

impl Driver {
    /// Starts, and lists everything.
    pub fn start(cluster: &Cluster, oracle: &mut Oracle, dice: &mut Dice, pool: Pool) -> Self {
        let listed: Vec<(NodeId, &[String])> = (0..)
            .map(NodeId)
            .zip(&cluster.nodes)
            .filter(|(_, node)| node.exists)
            .map(|(id, node)| (id, node.ranges.as_slice()))
            .collect();
        let (ranges, problems) = Ranges::new(vec![pool], &[], listed);
        for problem in problems {
            oracle.report.violations.push(format!("t={}: at start {problem:?}", cluster.now));
        }
        let mut driver = Self {
            lifecycle: NodeLifecycle::new(Settings::default()),
            evictions: Evictions::new(false),
            ranges,
            under_way: Vec::new(),
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
            self.range(cluster, oracle, dice, id);
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

    /// Pods that are seen for the first time, on a node that is lost: whoever was the controller
    /// before may have died before it marked them.
    fn mark_newly_seen(&mut self, cluster: &Cluster, id: u32) {
        if self.to_be_marked(cluster, id).next().is_some() {
            self.under_way.push((cluster.now + 1, Write::Marks { id, whole: false }));
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
    }

    fn forget(&mut self, id: u32) {
        self.lifecycle.forget(NodeId(id));
        self.evictions.node_gone(NodeId(id), (0..PODS).map(|pod| pod_id(id, pod)));
        self.ranges.gone(NodeId(id));
    }

    fn range(&mut self, cluster: &Cluster, oracle: &mut Oracle, dice: &mut Dice, id: u32) {
        for problem in self.ranges.seen(NodeId(id), &cluster.node(id).ranges) {
            oracle.report.violations.push(format!("t={}: node {id}: {problem}", cluster.now));
        }
        if cluster.node(id).ranges.is_empty()
            && let Assignment::Write(_) = self.ranges.assign(NodeId(id))
        {
            self.under_way.push((cluster.now + dice.between(1, 2), Write::Range(id)));
        }
    }

    /// One second of the controller.
    pub fn second(&mut self, cluster: &mut Cluster, oracle: &mut Oracle, dice: &mut Dice) {
        self.land(cluster, oracle, dice);
        if cluster.now < self.stalled_until {
            return;
        }
        if !self.sees(cluster) {
            // The watch is cut: what it had under way is lost.
            self.was_blind = true;
            cluster.news.clear();
        } else if std::mem::take(&mut self.was_blind) {
            cluster.news.clear();
            self.list(cluster, oracle, dice);
        } else {
            let late = cluster.now - dice.between(0, 2);
            self.read_news(cluster, oracle, dice, late);
        }
        let now = Moment::from_secs(cluster.now);
        for _ in 0..2 {
            let actions = self.lifecycle.tick(now, Moment::from_secs(self.proven));
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
                self.under_way.push((cluster.now + dice.between(0, 2), Write::Pod(id, pod)));
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
                News::Node(id, facts) => {
                    if cluster.node(id).exists {
                        let actions = self.observe(cluster, id, *facts, Sight::Event);
                        self.send(cluster, oracle, dice, actions);
                        self.range(cluster, oracle, dice, id);
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
                    self.under_way.push((cluster.now + dice.between(0, 2), marks));
                    continue;
                }
                Action::Tell { .. } => continue,
                Action::WriteConditions { .. } | Action::SetLabels { .. } => {}
            }
            self.under_way.push((cluster.now + dice.between(0, 2), Write::Node(action)));
        }
    }

    /// Writes whose time has come reach the store, or not.
    fn land(&mut self, cluster: &mut Cluster, oracle: &mut Oracle, dice: &mut Dice) {
        let under_way = std::mem::take(&mut self.under_way);
        let (due, later): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|(when, _)| *when <= cluster.now);
        self.under_way = later;
        for (_, write) in due {
            let arrives = cluster.api_is_up() && !dice.one_in(20);
            let luck = Luck { arrives, answered: arrives && !dice.one_in(40) };
            match write {
                Write::Node(action) => {
                    let more = self.land_node(cluster, oracle, &action, luck);
                    self.send(cluster, oracle, dice, more);
                }
                Write::Range(id) => {
                    if self.land_range(cluster, oracle, id, luck) {
                        self.under_way.push((cluster.now + dice.between(1, 2), Write::Range(id)));
                    }
                }
                Write::Pod(id, pod) => {
                    if luck.arrives {
                        Self::land_pod(cluster, oracle, id, pod);
                    } else {
                        // Decided anew from what we know now.
                        self.weigh_pods(cluster, id);
                    }
                }
                Write::Marks { id, whole } => {
                    self.land_marks(cluster, oracle, id, luck);
                    if whole {
                        let now = Moment::from_secs(cluster.now);
                        self.lifecycle.pods_marked(now, NodeId(id), luck.answered);
                    } else if !luck.answered {
                        self.under_way.push((cluster.now + 1, Write::Marks { id, whole }));
                    }
                }
            }
        }
    }

    fn land_node(
        &mut self,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        action: &Action,
        luck: Luck,
    ) -> Vec<Action> {
        let (id, kind, expected) = match action {
            Action::WriteConditions { node, version, .. } => {
                (node.0, WriteKind::Conditions, *version)
            }
            Action::PatchTaints { node, version, .. } => (node.0, WriteKind::Taints, *version),
            _ => return Vec::new(),
        };
        let node = cluster.node(id);
        let mut outcome = Outcome::Failed;
        if luck.arrives && node.exists && node.facts.version == expected {
            let version = cluster.write(id, |facts| match action {
                Action::WriteConditions { writes, .. } => {
                    for write in writes {
                        facts.conditions.set(write.kind, Some(write.condition));
                    }
                }
                Action::PatchTaints { patch, .. } => facts.taints = patch.apply(&facts.taints),
                _ => {}
            });
            if let Action::PatchTaints { patch, .. } = action
                && patch.evicts()
            {
                oracle.given_up(cluster, id, is_swap(patch));
            }
            if luck.answered {
                outcome = Outcome::Written { version };
            }
        }
        let now = Moment::from_secs(cluster.now);
        let more = self.lifecycle.written(now, NodeId(id), kind, outcome);
        self.weigh_pods(cluster, id);
        more
    }

    /// Says whether to try again.
    fn land_range(
        &mut self,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        id: u32,
        luck: Luck,
    ) -> bool {
        let Some(texts) = self.ranges.pending(NodeId(id)) else { return false };
        if !cluster.node(id).exists {
            self.ranges.written(NodeId(id), WriteFate::Refused);
            return false;
        }
        if luck.arrives && cluster.node(id).ranges.is_empty() {
            cluster.node_mut(id).ranges = texts;
            oracle.ranged(cluster, id);
            cluster.write(id, |_| {});
        }
        let fate = if luck.answered { WriteFate::Written } else { WriteFate::Unknown };
        self.ranges.written(NodeId(id), fate);
        !luck.answered
    }

    fn land_marks(&self, cluster: &mut Cluster, oracle: &mut Oracle, id: u32, luck: Luck) {
        let pods = self.to_be_marked(cluster, id);
        let node = cluster.node_mut(id);
        if luck.arrives && node.exists {
            for pod in pods {
                node.pods_ready[pod] = false;
                oracle.report.pods_marked += 1;
            }
        }
    }

    fn land_pod(cluster: &mut Cluster, oracle: &mut Oracle, id: u32, pod: usize) {
        let node = cluster.node_mut(id);
        if node.exists && node.pods[pod].take().is_some() {
            oracle.deleted(cluster, id);
        }
    }
}

/// Whether a write reaches the store, and whether its answer comes back.
#[derive(Clone, Copy)]
struct Luck {
    arrives: bool,
    answered: bool,
}

fn is_swap(patch: &node_health::taints::TaintPatch) -> bool {
    patch.remove.iter().any(|(_, effect)| *effect == pod_model::TaintEffect::NoExecute)
}

fn pod_id(node: u32, pod: usize) -> PodId {
    PodId(node * 4 + u32::try_from(pod).expect("small"))
}
