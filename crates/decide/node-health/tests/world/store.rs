//! Writes in flight, and what the API server does with each on arrival.
//!
//! Rule: guarded as by the real one: a node's object by the resource version that the write was
//! decided on, a pod CIDR by that and by being set only once, a pod by its identity (here the time
//! of its binding). Writes of a dead controller that still arrive are accepted or refused by the
//! same rules.

use node_health::lifecycle::LifecycleAction;
use node_health::taints::TaintPatch;
use node_health::{ConditionKind, ConditionState};
use pod_model::TaintEffect;

use super::cluster::SimulatedCluster;
use super::oracle::Oracle;
use super::rng::SeededRng;

/// Seconds that a watch may lag.
pub const WATCH_DELAY: i64 = 2;
/// Longest delay of a live controller's write, in seconds.
pub const WRITE_DELAY: i64 = 2;

/// A write.
pub enum SimulatedWrite {
    SimulatedNode(LifecycleAction),
    Range {
        id: u32,
        version: u64,
        texts: Vec<String>,
    },
    /// A change that only makes a new resource version.
    Touch {
        id: u32,
        version: u64,
    },
    /// A deletion, and the time up to which its controller's view was complete.
    Pod {
        id: u32,
        pod: usize,
        bound: i64,
        seen_through: i64,
    },
    /// Marks the pods of a node as not ready; `whole`: all of them, because the node left Ready.
    Marks {
        id: u32,
        whole: bool,
    },
}

/// The sender of a write, and when it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    pub instance: u32,
    pub sent: i64,
    pub dead: bool,
}

/// A write in flight.
pub struct SentWrite {
    pub lands: i64,
    pub author: Author,
    pub write: SimulatedWrite,
}

/// Applies a write. Returns the object's new version if it was accepted.
pub fn take(
    cluster: &mut SimulatedCluster,
    oracle: &mut Oracle,
    write: &SimulatedWrite,
    author: Author,
) -> Option<u64> {
    match write {
        SimulatedWrite::SimulatedNode(action) => take_node(cluster, oracle, action, author),
        SimulatedWrite::Range { id, version, texts } => {
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
        SimulatedWrite::Touch { id, version } => {
            let node = cluster.node(*id);
            let taken = node.exists && !node.stubborn && node.facts.version == *version;
            oracle.report.touches += u64::from(taken);
            taken.then(|| cluster.write(*id, |_| {}))
        }
        SimulatedWrite::Pod { id, pod, bound, seen_through } => {
            let node = cluster.node_mut(*id);
            if !node.exists || node.pods[*pod] != Some(*bound) {
                return None;
            }
            node.pods[*pod] = None;
            oracle.deleted(cluster, *id, *seen_through, author);
            Some(0)
        }
        SimulatedWrite::Marks { id, .. } => {
            let node = cluster.node_mut(*id);
            // The write names the pods' versions, and a kubelet that is back writes to its pods
            // when it writes its status.
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
    cluster: &mut SimulatedCluster,
    oracle: &mut Oracle,
    action: &LifecycleAction,
    author: Author,
) -> Option<u64> {
    let (LifecycleAction::WriteConditions { node, version, .. }
    | LifecycleAction::PatchTaints { node, version, .. }) = action
    else {
        return None;
    };
    let id = node.0;
    let node = cluster.node(id);
    if !node.exists || node.facts.version != *version {
        return None;
    }
    let written = cluster.write(id, |facts| match action {
        LifecycleAction::WriteConditions { writes, .. } => {
            for write in writes {
                facts.conditions.set(write.kind, Some(write.condition));
            }
        }
        LifecycleAction::PatchTaints { patch, .. } => facts.taints = patch.apply(&facts.taints),
        _ => {}
    });
    match action {
        LifecycleAction::PatchTaints { patch, .. } if patch.evicts() => {
            oracle.no_execute_tainted(cluster, id, is_swap(patch), author);
        }
        LifecycleAction::WriteConditions { writes, .. } => {
            let not_ready_transition =
                |kind, status| kind == ConditionKind::Ready && status == ConditionState::Unknown;
            if writes.iter().any(|write| not_ready_transition(write.kind, write.condition.status)) {
                oracle.marked_unknown(cluster, id, author);
            }
        }
        _ => {}
    }
    Some(written)
}

pub fn is_swap(patch: &TaintPatch) -> bool {
    patch.remove.iter().any(|(_, effect)| *effect == TaintEffect::NoExecute)
}

/// Writes of dead controllers that have not arrived yet: a request can stay in a socket, or in a
/// hung API server, long after its sender is gone.
#[derive(Default)]
pub struct OrphanedWrites(Vec<SentWrite>);

impl OrphanedWrites {
    /// Takes a dead controller's writes. Some are lost; the rest arrive around the start of its
    /// successor, where they can do most harm, or at any time within a minute.
    pub fn inherit(
        &mut self,
        dead: Vec<SentWrite>,
        successor_at: i64,
        now: i64,
        rng: &mut SeededRng,
    ) {
        for mut sent in dead {
            sent.author.dead = true;
            sent.lands = match rng.below(3) {
                0 => continue,
                1 => now + rng.between(1, 60),
                _ => (successor_at + rng.between(-3, 5)).max(now + 1),
            };
            self.0.push(sent);
        }
    }

    /// Delivers the writes that are due in this second, unless the API server is away.
    pub fn second(&mut self, cluster: &mut SimulatedCluster, oracle: &mut Oracle) {
        let now = cluster.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|sent| sent.lands <= now);
        self.0 = later;
        for SentWrite { author, write, .. } in due {
            let taken = cluster.api_is_up() && take(cluster, oracle, &write, author).is_some();
            oracle.report.orphaned_writes += 1;
            oracle.report.orphaned_writes_taken += u64::from(taken);
        }
    }
}
