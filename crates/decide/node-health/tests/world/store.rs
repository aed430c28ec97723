//! Writes on their way, and what the API server does with one that arrives, whoever sent it.
//!
//! Rule: guarded as the real one guards: a node's object by the version that the write was decided
//! on, a range by that and by being set only once, a pod by its identity (here the moment at which it
//! was bound). A dead controller's writes that still arrive are taken or refused by the same rules.

use node_health::lifecycle::Action;
use node_health::taints::TaintPatch;
use node_health::{ConditionKind, Truth};
use pod_model::TaintEffect;

use super::cluster::Cluster;
use super::dice::Dice;
use super::oracle::Oracle;

/// Seconds that a watch may lag.
pub const LAG: i64 = 2;
/// Seconds that a write of a controller that lives is on its way at most.
pub const WAY: i64 = 2;

/// A write.
pub enum Write {
    Node(Action),
    Range {
        id: u32,
        version: u64,
        texts: Vec<String>,
    },
    /// A change that makes a new version and nothing else.
    Touch {
        id: u32,
        version: u64,
    },
    /// A deletion, and through which moment its controller had seen everything.
    Pod {
        id: u32,
        pod: usize,
        bound: i64,
        seen_through: i64,
    },
    /// The pods of a node are not ready; `whole`: because it fell.
    Marks {
        id: u32,
        whole: bool,
    },
}

/// Who sent a write, and when.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    pub instance: u32,
    pub sent: i64,
    pub dead: bool,
}

/// A write on its way.
pub struct Sent {
    pub lands: i64,
    pub author: Author,
    pub write: Write,
}

/// A write arrives. The object's new version if it was taken.
pub fn take(
    cluster: &mut Cluster,
    oracle: &mut Oracle,
    write: &Write,
    author: Author,
) -> Option<u64> {
    match write {
        Write::Node(action) => take_node(cluster, oracle, action, author),
        Write::Range { id, version, texts } => {
            let node = cluster.node(*id);
            let taken = node.exists && node.facts.version == *version && node.ranges.is_empty();
            if author.dead {
                oracle.late_range(*id, texts, taken);
            }
            if !taken {
                return None;
            }
            let node = cluster.node_mut(*id);
            node.ranges.clone_from(texts);
            oracle.ranged(cluster, *id, author);
            Some(cluster.write(*id, |_| {}))
        }
        Write::Touch { id, version } => {
            let node = cluster.node(*id);
            let taken = node.exists && !node.stubborn && node.facts.version == *version;
            oracle.report.touches += u64::from(taken);
            taken.then(|| cluster.write(*id, |_| {}))
        }
        Write::Pod { id, pod, bound, seen_through } => {
            let node = cluster.node_mut(*id);
            if !node.exists || node.pods[*pod] != Some(*bound) {
                return None;
            }
            node.pods[*pod] = None;
            oracle.deleted(cluster, *id, *seen_through, author);
            Some(0)
        }
        Write::Marks { id, .. } => {
            let node = cluster.node_mut(*id);
            // It names the pods' versions, and a kubelet that is back writes to its pods when it
            // writes its status.
            if !node.exists || node.facts.conditions.is_ready() {
                return None;
            }
            for pod in 0..node.pods.len() {
                if node.pods[pod].is_some() && std::mem::take(&mut node.pods_ready[pod]) {
                    oracle.report.pods_marked += 1;
                }
            }
            Some(0)
        }
    }
}

fn take_node(
    cluster: &mut Cluster,
    oracle: &mut Oracle,
    action: &Action,
    author: Author,
) -> Option<u64> {
    let (Action::WriteConditions { node, version, .. } | Action::PatchTaints { node, version, .. }) =
        action
    else {
        return None;
    };
    let id = node.0;
    let node = cluster.node(id);
    if !node.exists || node.facts.version != *version {
        return None;
    }
    let written = cluster.write(id, |facts| match action {
        Action::WriteConditions { writes, .. } => {
            for write in writes {
                facts.conditions.set(write.kind, Some(write.condition));
            }
        }
        Action::PatchTaints { patch, .. } => facts.taints = patch.apply(&facts.taints),
        _ => {}
    });
    match action {
        Action::PatchTaints { patch, .. } if patch.evicts() => {
            oracle.given_up(cluster, id, is_swap(patch), author);
        }
        Action::WriteConditions { writes, .. } => {
            let falls = |kind, status| kind == ConditionKind::Ready && status == Truth::Unknown;
            if writes.iter().any(|write| falls(write.kind, write.condition.status)) {
                oracle.called_lost(cluster, id, author);
            }
        }
        _ => {}
    }
    Some(written)
}

pub fn is_swap(patch: &TaintPatch) -> bool {
    patch.remove.iter().any(|(_, effect)| *effect == TaintEffect::NoExecute)
}

/// What dead controllers had sent and what has not arrived yet: a request can lie in a socket, or in
/// an API server that stands still, long after whoever sent it is gone.
#[derive(Default)]
pub struct Strays(Vec<Sent>);

impl Strays {
    /// A controller died. Some of what it had sent is lost; the rest arrives around the moment at
    /// which its successor begins, where it can do most harm, or at any time within a minute.
    pub fn inherit(&mut self, dead: Vec<Sent>, successor_at: i64, now: i64, dice: &mut Dice) {
        for mut sent in dead {
            sent.author.dead = true;
            sent.lands = match dice.below(3) {
                0 => continue,
                1 => now + dice.between(1, 60),
                _ => (successor_at + dice.between(-3, 5)).max(now + 1),
            };
            self.0.push(sent);
        }
    }

    /// One second: those whose time has come arrive, unless the API server is away.
    pub fn second(&mut self, cluster: &mut Cluster, oracle: &mut Oracle) {
        let now = cluster.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|sent| sent.lands <= now);
        self.0 = later;
        for Sent { author, write, .. } in due {
            let taken = cluster.api_is_up() && take(cluster, oracle, &write, author).is_some();
            oracle.report.strays += 1;
            oracle.report.strays_taken += u64::from(taken);
        }
    }
}
