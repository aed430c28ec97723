//! OOM kills when the kernel log cannot be read: from the counters of containers' cgroups.
//!
//! Rules: for each pod with running containers one wait on its cgroup ends when a counter has
//! grown. The kills are noted for the container whose id is in the cgroup's name, and its pod is
//! relisted. The counters do not show which process was killed, and the event says so. Pods that
//! are not desired are not watched: where their cgroup is, is not known. The pod's memory knows how
//! many kills have been reported. Wakes only when pods change.

use crate::keyed_tasks::KeyedTasks;
use crate::oom_kills::memory_limit;
use crate::pods::PodContext;
use crate::termination::TerminationMessages;
use container_setup::cgroups;
use pod_lifecycle::{ObservedPod, OomKillRecord};
use pod_model::pod::Pod;
use ports::pod_host::HostError;
use ports::runtime_objects::ContainerState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// Changes that come together are handled together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// After a wait that failed.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(30);

type OomCounts = BTreeMap<String, u64>;

/// What is watched of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct WatchedPod {
    /// Its running containers: when they change, the cgroups to watch change.
    running: BTreeSet<String>,
    known: OomCounts,
}

/// Watches for ever.
pub(crate) async fn watch(context: Arc<PodContext>, messages: TerminationMessages) {
    let mut watched: BTreeMap<String, WatchedPod> = BTreeMap::new();
    let mut waits: KeyedTasks<String, Result<OomCounts, HostError>> = KeyedTasks::default();
    let mut version = 0;
    loop {
        watch_changed_pods(&context, &mut watched, &mut waits);
        tokio::select! {
            newer = context.status_store.changed(version) => {
                version = newer;
                tokio::time::sleep(DEBOUNCE).await;
            }
            (uid, outcome) = waits.next() => match outcome {
                Ok(Ok(counts)) => {
                    let Some(pod) = watched.get_mut(&uid) else { continue };
                    let change = CountChange { before: &pod.known, after: &counts };
                    record_kills(&context, &messages, &uid, change);
                    pod.known = counts;
                    if !start_wait(&context, &mut waits, &uid, pod.known.clone()) {
                        watched.remove(&uid);
                    }
                }
                Ok(Err(error @ HostError::Permanent(_))) => {
                    // Other containers may do better.
                    debug!(pod_uid = uid, err = %error, "A pod's memory kills are not counted");
                }
                Ok(Err(error)) => {
                    debug!(pod_uid = uid, err = %error, "A pod's memory kills are not counted now");
                    watched.remove(&uid);
                }
                Err(panicked) => {
                    warn!(pod_uid = uid, panic = panicked.0, "Counting memory kills panicked");
                    watched.remove(&uid);
                }
            },
        }
    }
}

/// Watches the pods whose running containers have changed.
fn watch_changed_pods(
    context: &Arc<PodContext>,
    watched: &mut BTreeMap<String, WatchedPod>,
    waits: &mut KeyedTasks<String, Result<OomCounts, HostError>>,
) {
    let observed: BTreeMap<String, Arc<ObservedPod>> = context.observed.all().into_iter().collect();
    watched.retain(|uid, _| {
        let stays = observed.get(uid).is_some_and(|pod| !running(pod).is_empty());
        if !stays {
            waits.abort(uid);
        }
        stays
    });
    for (uid, pod) in &observed {
        let running = running(pod);
        if running.is_empty() || watched.get(uid).is_some_and(|known| known.running == running) {
            continue;
        }
        waits.abort(uid);
        let mut entry = watched.remove(uid).unwrap_or_default();
        // A pod that is not in the store yet is watched once it is.
        if start_wait(context, waits, uid, entry.known.clone()) {
            entry.running = running;
            watched.insert(uid.clone(), entry);
        }
    }
}

fn running(pod: &ObservedPod) -> BTreeSet<String> {
    let records = pod.containers.iter().map(|container| &container.record);
    let running = records.filter(|record| record.state == ContainerState::Running);
    running.map(|record| record.id.clone()).collect()
}

/// Starts to wait for more kills in a pod; false if the pod is not desired.
fn start_wait(
    context: &Arc<PodContext>,
    waits: &mut KeyedTasks<String, Result<OomCounts, HostError>>,
    uid: &str,
    known: OomCounts,
) -> bool {
    let Some(pod) = context.status_store.wanted_pod(uid) else { return false };
    let context = context.clone();
    let task = async move { next_counts(&context, &pod, known).await };
    waits.start(uid.to_owned(), format!("memory kills of pod {uid}"), task);
    true
}

async fn next_counts(
    context: &PodContext,
    pod: &Pod,
    known: OomCounts,
) -> Result<OomCounts, HostError> {
    let name = cgroups::of_pod(&context.settings.cgroups.root, pod);
    let counts = context.ports.cgroups.wait_for_oom_kills(&name, &known).await;
    if matches!(counts, Err(HostError::Transient(_))) {
        tokio::time::sleep(WATCH_RETRY_DELAY).await;
    }
    counts
}

/// Whether a cgroup is this container's: named by its id alone (cgroupfs) or as a part of it
/// (systemd).
fn is_cgroup_of(group: &str, id: &str) -> bool {
    let ends = |rest: &str, end: fn(&str) -> Option<char>| {
        end(rest).is_none_or(|next| !next.is_ascii_alphanumeric())
    };
    let mut found = group.match_indices(id).map(|(at, _)| (&group[..at], &group[at + id.len()..]));
    !id.is_empty()
        && found.any(|(before, after)| {
            ends(before, |text| text.chars().next_back()) && ends(after, |text| text.chars().next())
        })
}

/// Two readings of a pod's counts.
#[derive(Clone, Copy)]
struct CountChange<'a> {
    before: &'a OomCounts,
    after: &'a OomCounts,
}

/// Notes the kills in the containers of a pod.
fn record_kills(
    context: &PodContext,
    messages: &TerminationMessages,
    uid: &str,
    change: CountChange<'_>,
) {
    let Some(pod) = context.observed.latest(uid) else { return };
    let CountChange { before, after } = change;
    let grown = after.iter().filter(|(group, count)| before.get(*group).is_none_or(|k| k < *count));
    for (group, count) in grown {
        for container in &pod.containers {
            let record = &container.record;
            if !is_cgroup_of(group, &record.id) {
                continue;
            }
            warn!(
                pod_uid = uid,
                container = record.name,
                kills = count,
                limit = memory_limit(record),
                "The kernel killed a process of a container for memory; which is not known"
            );
            let kills = OomKillRecord { unnamed: *count, ..OomKillRecord::default() };
            messages.note_oom_kill(&record.id, kills, false);
        }
    }
    context.observed.request_relist(uid);
}

#[cfg(test)]
mod tests;
