//! Garbage collection: dead containers and sandboxes, and what pods that are gone have left behind
//! (directories, cgroups, logs, links, records).
//!
//! Rules: nothing before every source has been read and the runtime was listed. `node-policy`
//! chooses the dead objects to remove. Whether a pod is gone is checked when something of it is
//! removed, not when the round began. The newest dead instance of a container stays while its pod
//! is here, so that its exit code is known, and none is removed before its exit is on disk. A pod
//! that the runtime still has is never gone. An object that cannot be removed is reported and left
//! for the next round; the node's event names the containers, sandboxes and logs that a round could
//! not remove. A pod's volumes may be on a file system that does not answer: what is left of each pod
//! is removed by a task of its own, which may go on over several rounds.

use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::pods::PodContext;
use crate::pods::pod_workers::ActivePods;
use container_setup::{cgroups, log_paths};
use node_policy::garbage::{Garbage, PodRecords, choose};
use pod_lifecycle::EventType;
use pod_model::pod::QosClass;
use ports::container_runtime::ContainerRuntimeError;
use ports::pod_host::{HostError, PodDirs};
use ports::runtime_objects::{ContainerRecord, ContainerState};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// As often as the kubelet does it.
const GC_PERIOD: Duration = Duration::from_secs(60);
/// Errors of a round that the event names.
const MAX_REPORTED: usize = 8;
/// Delay after a pod has gone.
const DELAY_AFTER_REMOVAL: Duration = Duration::from_secs(2);
/// Orphaned pods whose directories are removed at the same time.
const MAX_REMOVALS: usize = 8;

/// Removals of the directories of orphaned pods, by UID.
type DirRemovals = KeyedTasks<String, ()>;

/// Collects for ever.
pub(crate) async fn collect(context: Arc<PodContext>, mut active: watch::Receiver<ActivePods>) {
    let mut removals = DirRemovals::default();
    loop {
        let pods = active.borrow_and_update().clone();
        if pods.is_complete {
            let mut failures = remove_dead(&context, &pods.uids).await;
            failures.extend(remove_orphans(&context, &active, &mut removals).await);
            report_failures(&context, &failures);
        }
        context.ports.periodic_tasks.ended();
        let pause = tokio::time::sleep(GC_PERIOD);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                (uid, ended) = removals.next() => {
                    if let Err(Panicked(why)) = ended {
                        warn!(pod_uid = uid, panic = why, "Removing a pod's directory panicked");
                    }
                    // One that had to wait for its turn comes now.
                    if removals.len() + 1 == MAX_REMOVALS {
                        break;
                    }
                }
                changed = active.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(DELAY_AFTER_REMOVAL).await;
                    break;
                }
            }
        }
    }
}

/// Reports a round that could not remove everything.
fn report_failures(context: &PodContext, failures: &[String]) {
    let message = match failures {
        [] => return,
        [one] => one.clone(),
        // In the format in which Go prints several errors; further ones are only counted.
        many if many.len() > MAX_REPORTED => {
            let more = many.len() - MAX_REPORTED;
            format!("[{}, and {more} more]", many[..MAX_REPORTED].join(", "))
        }
        many => format!("[{}]", many.join(", ")),
    };
    let now = context.clock.now();
    context.status_store.emit_node_event(EventType::Warning, "ContainerGCFailed", &message, now);
}

/// Removes dead containers and sandboxes; returns a sentence for each error.
async fn remove_dead(context: &PodContext, active: &BTreeSet<String>) -> Vec<String> {
    let mut failures = Vec::new();
    let observed = context.observed.all();
    let remains: Vec<PodRecords<'_>> = observed
        .iter()
        // Pods that are not active have workers until nothing is left of them.
        .filter(|(uid, _)| active.contains(uid))
        .map(|(uid, pod)| PodRecords {
            uid,
            is_orphaned: false,
            sandboxes: pod.sandboxes.iter().collect(),
            containers: pod.containers.iter().map(|each| &each.record).collect(),
        })
        .collect();
    let Garbage { containers, sandboxes } =
        choose(&remains, &context.settings.dead, context.clock.now());
    let ports = &context.ports;
    for pod in &remains {
        let goes = |record: &&&ContainerRecord| containers.contains(&record.id);
        let is_recorded =
            |record: &&ContainerRecord| context.saved.is_recorded(pod.uid, &record.id);
        if !pod.containers.iter().filter(goes).all(is_recorded) {
            // Its worker has not saved yet how they ended; the next round finds them again.
            continue;
        }
        for record in pod.containers.iter().filter(|each| containers.contains(&each.id)) {
            if let Err(why) = remove_log(&*ports.dirs, &record.log_path).await {
                failures.push(why);
                continue;
            }
            let removed = ignore_not_found(ports.runtime.remove_container(&record.id).await);
            failures.extend(failure_message("container", &record.id, &removed));
        }
        for sandbox in pod.sandboxes.iter().filter(|each| sandboxes.contains(&each.id)) {
            let removed = ignore_not_found(ports.runtime.remove_sandbox(&sandbox.id).await);
            failures.extend(failure_message("sandbox", &sandbox.id, &removed));
        }
        let has_garbage = pod.containers.iter().any(|each| containers.contains(&each.id))
            || pod.sandboxes.iter().any(|each| sandboxes.contains(&each.id));
        if has_garbage {
            context.observed.request_relist(pod.uid);
        }
    }
    failures
}

/// Removes a container's log. A log that can never be removed, such as one from before `podLogsDir`
/// was changed, is left where it is and is no error.
pub(crate) async fn remove_log(dirs: &dyn PodDirs, path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Ok(());
    }
    match dirs.remove_container_log(path).await {
        Ok(()) => Ok(()),
        Err(HostError::Permanent(why)) => {
            warn!(log = path, err = why, "Leaving the log of a dead container where it is");
            Ok(())
        }
        Err(HostError::Transient(why)) => {
            warn!(log = path, err = why, "Cannot remove the log of a dead container");
            Err(format!("failed to remove log {path:?}: {why}"))
        }
    }
}

/// Paths of logs that a container still writes or is about to open.
fn logs_in_use(context: &PodContext) -> BTreeSet<String> {
    let pods = context.observed.all();
    let all = pods.iter().flat_map(|(_, pod)| &pod.containers).map(|each| &each.record);
    let live = all.filter(|record| record.state != ContainerState::Exited);
    live.map(|record| record.log_path.clone()).collect()
}

/// Removes what is left of pods that are neither desired nor in the runtime; returns the errors for
/// their logs.
async fn remove_orphans(
    context: &Arc<PodContext>,
    active: &watch::Receiver<ActivePods>,
    removals: &mut DirRemovals,
) -> Vec<String> {
    let mut failures = Vec::new();
    // Checked again for each object: a round may take long, and pods come meanwhile.
    let is_orphaned = |uid: &str| is_orphaned(context, active, uid);
    let ports = &context.ports;
    for uid in list_or_warn("folders of pods", ports.dirs.pods().await) {
        if is_orphaned(&uid) && !removals.contains(&uid) && removals.len() < MAX_REMOVALS {
            let name = format!("removal of what is left of pod {uid}");
            let removal = remove_pod_dir(context.clone(), active.clone(), uid.clone());
            removals.start(uid, name, removal);
        }
    }
    if context.settings.cgroups.per_qos {
        remove_cgroups(context, &is_orphaned).await;
    }
    let logs = ports.dirs.pod_logs().await;
    if let Err(error) = &logs {
        let dir = &context.settings.setup.pod_logs_directory;
        failures.push(format!("failed to read podLogsDirectory {dir:?}: {error}"));
    }
    for dir in list_or_warn("log folders of pods", logs) {
        if is_orphaned(log_paths::uid_of_dir(&dir)) {
            let removed = ports.dirs.remove_pod_log(&dir).await;
            failures.extend(failure_message("log folder", &dir, &removed));
        }
    }
    let running = logs_in_use(context);
    log_if_failed("dead links of logs", "", &ports.dirs.remove_dead_links(running).await);
    let active = active.borrow().uids.clone();
    for uid in context.saved.uids_except(&active).iter().filter(|uid| is_orphaned(uid)) {
        context.saved.forget(uid).await;
    }
    failures
}

/// Whether a pod is neither desired nor in the runtime.
fn is_orphaned(context: &PodContext, active: &watch::Receiver<ActivePods>, uid: &str) -> bool {
    let is_active = {
        let pods = active.borrow();
        !pods.is_complete || pods.uids.contains(uid)
    };
    let inventory = context.observed.inventory();
    let is_there = inventory.borrow().as_ref().is_none_or(|listed| listed.contains_key(uid));
    !is_active && !is_there
}

/// Removes the volumes of an orphaned pod, then its directory, which fails while something is
/// mounted in it.
async fn remove_pod_dir(
    context: Arc<PodContext>,
    active: watch::Receiver<ActivePods>,
    uid: String,
) {
    let ports = &context.ports;
    info!(pod_uid = uid, "Removing the directory of a pod that is gone");
    if log_if_failed("volumes of pod", &uid, &ports.volumes.tear_down(&uid).await)
        && is_orphaned(&context, &active, &uid)
    {
        log_if_failed("folder of pod", &uid, &ports.dirs.remove_pod(&uid).await);
    }
}

/// An object that does not exist need not be removed.
fn ignore_not_found(
    removed: Result<(), ContainerRuntimeError>,
) -> Result<(), ContainerRuntimeError> {
    match removed {
        Err(ContainerRuntimeError::NotFound { .. }) => Ok(()),
        removed => removed,
    }
}

/// Error message for an object that could not be removed.
fn failure_message<E: std::fmt::Display>(
    what: &str,
    name: &str,
    removed: &Result<(), E>,
) -> Option<String> {
    log_if_failed(what, name, removed);
    let error = removed.as_ref().err()?;
    Some(format!("failed to remove {what} {name:?}: {error}"))
}

async fn remove_cgroups(context: &PodContext, is_orphaned: &impl Fn(&str) -> bool) {
    let root = &context.settings.cgroups.root;
    let host = &context.ports.cgroups;
    for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        let parent = cgroups::of_class(root, &class);
        for child in list_or_warn("cgroups of pods", host.children(&parent).await) {
            if cgroups::uid_of_name(&child).is_some_and(is_orphaned) {
                let mut name = parent.clone();
                name.push(child.clone());
                log_if_failed("cgroup", &child, &host.remove(&name).await);
            }
        }
    }
}

fn list_or_warn<E: std::fmt::Display>(what: &str, listed: Result<Vec<String>, E>) -> Vec<String> {
    listed.unwrap_or_else(|error| {
        warn!(what, err = %error, "Cannot look for what lies about");
        Vec::new()
    })
}

fn log_if_failed<E: std::fmt::Display>(what: &str, name: &str, removed: &Result<(), E>) -> bool {
    if let Err(error) = removed {
        warn!(what, name, err = %error, "Cannot remove what is not needed any more");
    }
    removed.is_ok()
}
