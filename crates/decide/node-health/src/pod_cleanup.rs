//! Pod garbage collection: which pods this controller deletes because no kubelet will. Four rules.
//!
//! Terminated pods beyond a threshold; terminating pods on a node that is not ready and declared
//! out of service; pods of nodes that no longer exist, after a quarantine and a live read;
//! terminating pods that were never bound. All are deleted with a grace period of zero, after their
//! phase was set to Failed unless they had terminated by themselves. Volume attachments are never
//! touched. upstream: podgc/gc_controller.go

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::no_execute::DisruptionTarget;
use crate::time::{ControllerTime, RemoteTime};

/// The interval between passes, as upstream.
pub const PERIOD: Duration = Duration::from_secs(20);

/// The condition of a pod whose node is gone.
pub const DELETION_BY_CLEANUP: DisruptionTarget =
    DisruptionTarget { reason: "DeletionByPodGC", message: "PodGC: node no longer exists" };

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Running.
    Running,
    /// Terminated with success.
    Succeeded,
    /// Terminated with an error.
    Failed,
    /// Its node is unreachable.
    Unknown,
    /// Empty, or a phase of later versions. Counts as terminated, as upstream.
    Other,
}

impl Phase {
    /// Parses a phase.
    pub fn parse(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Other,
        }
    }

    fn has_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Unknown)
    }

    /// Whether it has to be set to Failed before the deletion: the pod has not terminated by
    /// itself.
    pub fn must_be_failed_first(self) -> bool {
        !matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The fields of a pod that the rules read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPod<'a, P> {
    /// The shell's handle.
    pub pod: P,
    /// Its name, to order pods of equal age.
    pub name: &'a str,
    /// Its node's name; empty if it was never bound.
    pub node: &'a str,
    /// Its phase.
    pub phase: Phase,
    /// Whether it failed because a kubelet evicted it.
    pub evicted: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// When it was created.
    pub created: RemoteTime,
}

/// The fields of a node that the rules read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupNode {
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has the out-of-service taint, with any value and effect.
    pub out_of_service: bool,
}

/// Why a pod is deleted; also the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CleanupReason {
    /// It terminated, and there are too many such pods.
    Terminated,
    /// It cannot terminate: its node is out of service.
    OutOfService,
    /// Its node is gone.
    Orphaned,
    /// It was deleted before it was bound.
    Unscheduled,
}

impl CleanupReason {
    /// The label of the metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }
}

/// A pod to delete with a grace period of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForceDelete<P> {
    /// Which.
    pub pod: P,
    /// Why.
    pub why: CleanupReason,
    /// Whether its phase has to be set to Failed first.
    pub fail_first: bool,
    /// A condition to set with it; only where the phase is written at all.
    pub condition: Option<DisruptionTarget>,
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanupPass<P> {
    /// Pods to delete, in this order.
    pub deletes: Vec<ForceDelete<P>>,
    /// Nodes to read from the API server, past all caches; report with `confirm_node_absent` or
    /// `confirm_node_present` and make another pass.
    pub nodes_to_verify: Vec<Box<str>>,
}

/// State between passes: nodes that pods name and that were not observed.
#[derive(Clone, Debug, Default)]
pub struct PodCleanup {
    threshold: usize,
    quarantine: Duration,
    missing: BTreeMap<Box<str>, ControllerTime>,
    gone: BTreeSet<Box<str>>,
}

impl PodCleanup {
    /// `threshold`: how many terminated pods may stay; zero disables that rule.
    pub fn new(threshold: usize) -> Self {
        let quarantine = Duration::from_secs(40);
        Self { threshold, quarantine, missing: BTreeMap::new(), gone: BTreeSet::new() }
    }

    /// Sets a quarantine other than upstream's 40 s.
    pub fn with_quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine = quarantine;
        self
    }

    /// Evaluates all cached pods and nodes.
    pub fn pass<P: Copy>(
        &mut self,
        now: ControllerTime,
        pods: &[CleanupPod<'_, P>],
        nodes: &BTreeMap<&str, CleanupNode>,
    ) -> CleanupPass<P> {
        let mut deletes = self.surplus(pods);
        deletes.extend(out_of_service(pods, nodes));
        let nodes_to_verify = self.quarantined(now, pods, nodes);
        let orphans = pods.iter().filter(|pod| self.gone.contains(pod.node));
        deletes.extend(orphans.map(|pod| force(pod, CleanupReason::Orphaned)));
        let unbound = pods.iter().filter(|pod| pod.terminating && pod.node.is_empty());
        deletes.extend(unbound.map(|pod| force(pod, CleanupReason::Unscheduled)));
        // A confirmation serves one pass; a node still missing then is looked up again.
        self.gone.clear();
        CleanupPass { deletes, nodes_to_verify }
    }

    fn surplus<P: Copy>(&self, pods: &[CleanupPod<'_, P>]) -> Vec<ForceDelete<P>> {
        if self.threshold == 0 {
            return Vec::new();
        }
        let mut ended: Vec<_> = pods.iter().filter(|pod| pod.phase.has_ended()).collect();
        let surplus = ended.len().saturating_sub(self.threshold);
        if surplus > 0 {
            ended.sort_by(|a, b| by_eviction_and_age(a, b));
        }
        ended.into_iter().take(surplus).map(|pod| force(pod, CleanupReason::Terminated)).collect()
    }

    fn quarantined<P>(
        &mut self,
        now: ControllerTime,
        pods: &[CleanupPod<'_, P>],
        nodes: &BTreeMap<&str, CleanupNode>,
    ) -> Vec<Box<str>> {
        let named: BTreeSet<&str> = pods
            .iter()
            .map(|pod| pod.node)
            .filter(|node| !node.is_empty() && !nodes.contains_key(node))
            .collect();
        self.missing.retain(|node, _| named.contains(&**node));
        self.gone.retain(|node| named.contains(&**node));
        for node in &named {
            if !self.missing.contains_key(*node) {
                self.missing.insert((*node).into(), now);
            }
        }
        let over = |since: &ControllerTime| now.since(*since) >= self.quarantine;
        self.missing
            .iter()
            .filter(|(node, since)| over(since) && !self.gone.contains(*node))
            .map(|(node, _)| node.clone())
            .collect()
    }

    /// Records that the API server has no such node.
    pub fn confirm_node_absent(&mut self, node: &str) {
        // Ignore a result that was not requested: the node has no quarantine.
        if self.missing.contains_key(node) {
            self.gone.insert(node.into());
        }
    }

    /// Records that the node exists, or that the read failed; its quarantine restarts.
    pub fn confirm_node_present(&mut self, now: ControllerTime, node: &str) {
        if let Some(since) = self.missing.get_mut(node) {
            *since = now;
        }
    }

    /// Records that a node of this name exists: if it goes again, the quarantine starts from zero.
    pub fn on_node_added(&mut self, node: &str) {
        self.missing.remove(node);
        self.gone.remove(node);
    }

    /// Records that no pod names a missing node; a pass would find the same.
    pub fn clear_missing_nodes(&mut self) {
        self.missing.clear();
        self.gone.clear();
    }

    /// When the next quarantine ends, if nothing else happens.
    pub fn next_wake(&self) -> Option<ControllerTime> {
        self.missing.values().map(|since| since.after(self.quarantine)).min()
    }
}

fn force<P: Copy>(pod: &CleanupPod<'_, P>, why: CleanupReason) -> ForceDelete<P> {
    let fail_first = pod.phase.must_be_failed_first();
    let condition = (fail_first && why == CleanupReason::Orphaned).then_some(DELETION_BY_CLEANUP);
    ForceDelete { pod: pod.pod, why, fail_first, condition }
}

fn out_of_service<P: Copy>(
    pods: &[CleanupPod<'_, P>],
    nodes: &BTreeMap<&str, CleanupNode>,
) -> Vec<ForceDelete<P>> {
    let stuck = |pod: &&CleanupPod<'_, P>| {
        let on_dead_node = |node: &CleanupNode| !node.ready && node.out_of_service;
        pod.terminating && nodes.get(pod.node).is_some_and(on_dead_node)
    };
    let mut found: Vec<_> = pods.iter().filter(stuck).collect();
    found.sort_by(|a, b| by_eviction_and_age(a, b));
    found.into_iter().map(|pod| force(pod, CleanupReason::OutOfService)).collect()
}

/// Evicted pods first, then the oldest, then by name.
fn by_eviction_and_age<P>(a: &CleanupPod<'_, P>, b: &CleanupPod<'_, P>) -> std::cmp::Ordering {
    b.evicted
        .cmp(&a.evicted)
        .then(a.created.nanos().cmp(&b.created.nanos()))
        .then_with(|| a.name.cmp(b.name))
}

#[cfg(test)]
mod tests;
