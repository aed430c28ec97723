//! The cluster: nodes, their kubelets, and the API server's store. Independent of the controller.
//! Watch events are delivered with a delay.

use std::collections::BTreeSet;

use node_health::facts::{
    ConditionKind, ConditionState, Conditions, NodeConditionFacts, NodeHealthFacts, Taint,
};
use node_health::zones::ZoneKey;
use node_health::{ControllerTime, RemoteTime, TaintKey};
use pod_model::TaintEffect;

use super::rng::SeededRng;

/// Kubelets renew their lease this often, in seconds.
pub const RENEW: usize = 10;
/// Pods per node: one tolerates 300 s, one 30 s, one for ever.
pub const PODS: usize = 3;

/// One node: its true state, and what the API server has.
#[derive(Clone, Debug)]
pub struct SimulatedNode {
    pub zone: usize,
    pub exists: bool,
    pub facts: NodeHealthFacts,
    pub lease: RemoteTime,
    /// When its lease was last renewed, on the simulation's clock.
    pub renewed_at: Option<i64>,
    /// Its own clock's offset, in seconds.
    clock_error: i64,
    /// Disconnected from the API server, or powered off, until then.
    pub lost_until: i64,
    /// Reports itself not ready until then.
    pub ill_until: i64,
    /// When its kubelet first posts a status.
    starts_at: i64,
    /// Since when it is well in truth, whether or not anything observed it.
    pub well_since: Option<i64>,
    /// Since when the API server has a Ready status from the node itself.
    pub reported_since: Option<i64>,
    /// Since when it is disconnected or powered off.
    pub lost_since: Option<i64>,
    pub ranges: Vec<String>,
    /// The API server refuses fence writes to it.
    pub stubborn: bool,
    /// When each pod was bound; absent where it was deleted.
    pub pods: [Option<i64>; PODS],
    /// Whether each is ready in the API.
    pub pods_ready: [bool; PODS],
    /// It became Unknown from Ready: its pods are still marked ready.
    pub fell: bool,
}

/// A watch event.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The node at that time, with its pod CIDRs.
    SimulatedNode(u32, Box<(NodeHealthFacts, Vec<String>)>),
    Lease(u32, RemoteTime),
    Gone(u32),
    Pod(u32),
}

/// The whole cluster.
pub struct SimulatedCluster {
    pub nodes: Vec<SimulatedNode>,
    pub zones: usize,
    pub now: i64,
    pub api_down_until: i64,
    pub api_up_since: i64,
    /// Every node, old and new, is disconnected until then.
    pub all_lost_until: i64,
    /// When lost nodes return.
    returns: BTreeSet<(i64, u32)>,
    version: u64,
    pub keys: Vec<ZoneKey>,
    slots: Vec<Vec<u32>>,
    /// Whether there are nodes that cannot be fenced. If so, the fence stays closed until every
    /// delayed write has arrived.
    has_stubborn: bool,
    /// Events not yet delivered, oldest first.
    pub watch_events: Vec<(i64, WatchEvent)>,
    /// Nodes that exist, and those that are Ready in the API, per zone.
    pub members: Vec<usize>,
    pub ready: Vec<usize>,
}

impl SimulatedCluster {
    pub fn new(count: usize, zones: usize, start: i64, rng: &mut SeededRng) -> Self {
        let label = |zone: usize| {
            let pair = ("topology.kubernetes.io/zone".to_owned(), format!("zone-{zone}"));
            ZoneKey::from_labels(&[pair].into())
        };
        let mut cluster = Self {
            nodes: Vec::new(),
            zones,
            now: start,
            api_down_until: 0,
            api_up_since: 0,
            all_lost_until: 0,
            returns: BTreeSet::new(),
            version: 1,
            keys: (0..zones).map(label).collect(),
            slots: vec![Vec::new(); RENEW],
            has_stubborn: rng.one_in(3),
            watch_events: Vec::new(),
            members: vec![0; zones],
            ready: vec![0; zones],
        };
        for number in 0..count {
            let node = cluster.join(number % zones, start, rng);
            cluster.post_status(node);
        }
        cluster
    }

    pub fn api_is_up(&self) -> bool {
        self.now >= self.api_down_until
    }

    /// Adds a node; its kubelet posts from then on.
    pub fn join(&mut self, zone: usize, starts_at: i64, rng: &mut SeededRng) -> u32 {
        let id = u32::try_from(self.nodes.len()).expect("few nodes");
        self.version += 1;
        let facts = NodeHealthFacts {
            created: ControllerTime::from_secs(self.now).stamp(),
            version: self.version,
            conditions: Conditions::default(),
            taints: Vec::new(),
            unschedulable: false,
            zone: self.keys[zone].clone(),
            excluded: false,
            label_fixes: Vec::new(),
        };
        self.nodes.push(SimulatedNode {
            zone,
            exists: true,
            facts,
            lease: RemoteTime::from_nanos(0),
            renewed_at: None,
            clock_error: if rng.one_in(10) { rng.between(-90_000_000, 90_000_000) } else { 0 },
            lost_until: 0,
            ill_until: 0,
            starts_at,
            well_since: None,
            reported_since: None,
            lost_since: None,
            ranges: Vec::new(),
            stubborn: self.has_stubborn && rng.one_in(100),
            pods: [Some(self.now); PODS],
            pods_ready: [false; PODS],
            fell: false,
        });
        let slot = rng.below(RENEW);
        self.slots[slot].push(id);
        self.members[zone] += 1;
        self.emit_node(id);
        id
    }

    pub fn delete(&mut self, id: u32) {
        let was_ready = self.node(id).facts.conditions.is_ready();
        let node = self.node_mut(id);
        node.exists = false;
        let zone = node.zone;
        self.members[zone] -= 1;
        self.ready[zone] -= usize::from(was_ready);
        self.watch_events.push((self.now, WatchEvent::Gone(id)));
    }

    pub fn node(&self, id: u32) -> &SimulatedNode {
        &self.nodes[usize::try_from(id).expect("small")]
    }

    pub fn node_mut(&mut self, id: u32) -> &mut SimulatedNode {
        &mut self.nodes[usize::try_from(id).expect("small")]
    }

    fn emit_node(&mut self, id: u32) {
        let node = self.node(id);
        let seen = Box::new((node.facts.clone(), node.ranges.clone()));
        self.watch_events.push((self.now, WatchEvent::SimulatedNode(id, seen)));
    }

    /// Changes a node's object. All writes go through here.
    pub fn write(&mut self, id: u32, change: impl FnOnce(&mut NodeHealthFacts)) -> u64 {
        self.version += 1;
        let version = self.version;
        let was_ready = self.node(id).facts.conditions.is_ready();
        let node = self.node_mut(id);
        change(&mut node.facts);
        node.facts.version = version;
        let unknown =
            node.facts.conditions.status(ConditionKind::Ready) == Some(ConditionState::Unknown);
        node.fell = unknown && (was_ready || node.fell);
        let (zone, is_ready) = (node.zone, node.facts.conditions.is_ready());
        self.ready[zone] = self.ready[zone] + usize::from(is_ready) - usize::from(was_ready);
        self.emit_node(id);
        version
    }

    /// The kubelet's own status update.
    fn post_status(&mut self, id: u32) {
        let now = self.now;
        let node = self.node(id);
        let ready = if now < node.ill_until { ConditionState::False } else { ConditionState::True };
        let stamp = ControllerTime::from_secs(now + node.clock_error).stamp();
        self.write(id, |facts| {
            for kind in ConditionKind::ALL {
                let status =
                    if kind == ConditionKind::Ready { ready } else { ConditionState::False };
                let condition = NodeConditionFacts { status, heartbeat: stamp, transition: stamp };
                facts.conditions.set(kind, Some(condition));
            }
        });
        let node = self.node_mut(id);
        node.lost_since = None;
        node.pods_ready = [true; PODS];
        let well = ready == ConditionState::True;
        node.well_since = well.then_some(node.well_since.unwrap_or(now));
        node.reported_since = well.then_some(node.reported_since.unwrap_or(now));
    }

    /// Simulates one second of all kubelets.
    pub fn second(&mut self, rng: &mut SeededRng) {
        self.now += 1;
        let now = self.now;
        let slot = usize::try_from(now).expect("after the epoch") % RENEW;
        let due = std::mem::take(&mut self.slots[slot]);
        let up = self.api_is_up();
        if !up {
            self.api_up_since = now + 1;
        }
        for &id in &due {
            let node = self.node_mut(id);
            if !node.exists || now < node.lost_until || now < node.starts_at {
                continue;
            }
            if rng.one_in(50_000) {
                node.clock_error = rng.between(-90_000_000, 90_000_000);
            }
            if !up {
                continue;
            }
            // A node that renews is not lost, even if it is lost again in the next second.
            node.lost_since = None;
            node.lease = ControllerTime::from_secs(now + node.clock_error).stamp();
            node.renewed_at = Some(now);
            let lease = node.lease;
            self.watch_events.push((now, WatchEvent::Lease(id, lease)));
            // A kubelet posts when the API's status differs from its own.
            let truth = if now < self.node(id).ill_until {
                ConditionState::False
            } else {
                ConditionState::True
            };
            if self.node(id).facts.conditions.status(ConditionKind::Ready) != Some(truth) {
                self.post_status(id);
            }
            // It also resets its pods' status; they keep running whatever the API says.
            self.node_mut(id).pods_ready = [true; PODS];
            self.bring_pods_back(id);
        }
        self.slots[slot] = due;
    }

    /// A node that has been well for a while gets new pods.
    fn bring_pods_back(&mut self, id: u32) {
        let now = self.now;
        let node = self.node_mut(id);
        if node.well_since.is_none_or(|since| now - since <= 30) || has_lost_taint(&node.facts) {
            return;
        }
        for pod in 0..PODS {
            if self.node(id).pods[pod].is_none() {
                self.node_mut(id).pods[pod] = Some(now);
                self.watch_events.push((now, WatchEvent::Pod(id)));
            }
        }
    }

    /// Disconnects a node.
    pub fn lose(&mut self, id: u32, until: i64) {
        let now = self.now;
        let node = self.node_mut(id);
        if node.exists && node.lost_until < until {
            node.lost_until = until;
            node.well_since = None;
            node.reported_since = None;
            node.lost_since = node.lost_since.or(Some(now));
            self.returns.insert((until, id));
        }
    }

    /// Makes a node report itself not ready at its next update.
    pub fn make_unready(&mut self, id: u32, until: i64) {
        let node = self.node_mut(id);
        if node.exists && node.lost_since.is_none() {
            node.ill_until = until;
            node.well_since = None;
            node.reported_since = None;
        }
    }

    /// Makes returned nodes healthy from now on, though the API server may not know it yet.
    pub fn recover(&mut self) {
        let now = self.now;
        while let Some((until, id)) =
            self.returns.first().copied().filter(|(until, _)| *until <= now)
        {
            self.returns.remove(&(until, id));
            let node = self.node_mut(id);
            if node.lost_since.is_some() && now >= node.lost_until {
                node.lost_since = None;
                node.well_since = (now >= node.ill_until && now >= node.starts_at).then_some(now);
            }
        }
    }
}

/// Whether it has one of the two NoExecute "lost" taints.
pub fn has_lost_taint(facts: &NodeHealthFacts) -> bool {
    facts.taints.iter().any(|taint: &Taint| {
        taint.effect == TaintEffect::NoExecute
            && matches!(taint.key, TaintKey::NotReady | TaintKey::Unreachable)
    })
}
