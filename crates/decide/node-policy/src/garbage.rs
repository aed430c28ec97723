//! Garbage collection of dead containers and sandboxes.
//!
//! Rules: of each container of a pod the newest dead ones are kept, up to the configured number; in
//! all no more than configured, the oldest are removed first; none below the minimum age. A sandbox
//! that is not ready is removed when it has no container and is not the newest of its pod. Of a pod
//! that is gone everything is removed. What runs, and what is being created, stays.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_gc.go

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, ContainerState, SandboxRecord};

#[cfg(test)]
mod tests;

/// The configured limits for dead containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadContainerLimits {
    /// `--minimum-container-ttl-duration`.
    pub min_age: Duration,
    /// `--maximum-dead-containers-per-container`; None for no limit.
    pub max_per_container: Option<usize>,
    /// `--maximum-dead-containers`; None for no limit.
    pub max_total: Option<usize>,
}

impl Default for DeadContainerLimits {
    fn default() -> Self {
        Self { min_age: Duration::ZERO, max_per_container: Some(1), max_total: None }
    }
}

/// The runtime's objects of a pod.
#[derive(Debug, Clone)]
pub struct PodRecords<'a> {
    pub uid: &'a str,
    /// The pod is in no source and has no worker.
    pub is_orphaned: bool,
    pub sandboxes: Vec<&'a SandboxRecord>,
    pub containers: Vec<&'a ContainerRecord>,
}

/// What should be removed, by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Garbage {
    pub containers: BTreeSet<String>,
    pub sandboxes: BTreeSet<String>,
}

/// Chooses what to remove.
pub fn choose(pods: &[PodRecords<'_>], limits: &DeadContainerLimits, now: ApiTime) -> Garbage {
    let mut garbage = Garbage::default();
    let mut kept: Vec<Vec<&ContainerRecord>> = Vec::new();
    for pod in pods {
        for mut dead in dead_by_name(pod, limits, now) {
            // By attempt first: after a clock is set back the newer one looks older.
            dead.sort_by_key(|record| std::cmp::Reverse((record.attempt, record.created_at)));
            let keep =
                if pod.is_orphaned { 0 } else { limits.max_per_container.unwrap_or(usize::MAX) };
            let surplus = dead.split_off(keep.min(dead.len()));
            garbage.containers.extend(surplus.into_iter().map(|record| record.id.clone()));
            kept.push(dead);
        }
    }
    if let Some(most) = limits.max_total {
        garbage.containers.extend(over_total_limit(kept, most));
    }
    for pod in pods {
        garbage.sandboxes.extend(empty_sandboxes(pod, &garbage.containers));
    }
    garbage
}

/// Dead containers above the minimum age, by name.
fn dead_by_name<'a>(
    pod: &PodRecords<'a>,
    limits: &DeadContainerLimits,
    now: ApiTime,
) -> Vec<Vec<&'a ContainerRecord>> {
    let min_age = i64::try_from(limits.min_age.as_nanos()).unwrap_or(i64::MAX);
    let mut by_name: BTreeMap<&str, Vec<&ContainerRecord>> = BTreeMap::new();
    for record in &pod.containers {
        let is_old = now.nanos().saturating_sub(record.created_at) >= min_age;
        if record.state == ContainerState::Exited && is_old {
            by_name.entry(record.name.as_str()).or_default().push(record);
        }
    }
    by_name.into_values().collect()
}

/// The containers beyond the total limit: first an equal share for each, then the oldest.
fn over_total_limit(kept: Vec<Vec<&ContainerRecord>>, most: usize) -> Vec<String> {
    let mut gone = Vec::new();
    let total: usize = kept.iter().map(Vec::len).sum();
    if total <= most {
        return gone;
    }
    let share = most.checked_div(kept.len()).unwrap_or(0).max(1);
    let mut rest: Vec<&ContainerRecord> = Vec::new();
    for mut dead in kept {
        let surplus = dead.split_off(share.min(dead.len()));
        gone.extend(surplus.into_iter().map(|record| record.id.clone()));
        rest.extend(dead);
    }
    rest.sort_by_key(|record| record.created_at);
    let surplus = rest.len().saturating_sub(most);
    gone.extend(rest.into_iter().take(surplus).map(|record| record.id.clone()));
    gone
}

fn empty_sandboxes(pod: &PodRecords<'_>, removed: &BTreeSet<String>) -> Vec<String> {
    let has_containers = |sandbox: &SandboxRecord| {
        let mut all = pod.containers.iter();
        all.any(|record| record.sandbox_id == sandbox.id && !removed.contains(&record.id))
    };
    let newest = pod.sandboxes.iter().max_by_key(|each| (each.attempt, each.created_at));
    let newest = newest.map(|sandbox| sandbox.id.as_str());
    let goes = |sandbox: &&&SandboxRecord| {
        let is_newest = newest == Some(sandbox.id.as_str());
        !sandbox.ready && !has_containers(sandbox) && (pod.is_orphaned || !is_newest)
    };
    pod.sandboxes.iter().filter(goes).map(|sandbox| sandbox.id.clone()).collect()
}
