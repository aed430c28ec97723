//! OOM kills from the kernel log, matched to containers.
//!
//! Rules: a kill is noted for each container whose id is in the victim's cgroup name, and its pod
//! is relisted, so that a note that comes after the exit is still reported, and one of a container
//! that was not seen yet is reported once it is seen. The log is read from its beginning after the
//! first listing: kills while no agent ran are reported by this one, and each pod's memory knows
//! which kills have been reported. If a whole cgroup was killed, the note is of the process that
//! triggered the kill, not of those killed with it. A container that is created and killed while
//! the runtime is being listed may lose its note.

use crate::observed::ObservedPods;
use crate::termination::TerminationMessages;
use pod_lifecycle::OomKillRecord;
use ports::pod_host::{OomKill, OomKillLog};
use ports::runtime_objects::ContainerRecord;
use std::sync::Arc;
use tokio::sync::Mutex;
use tracing::warn;

/// Shortest text that counts as a container id.
const SHORTEST_ID: usize = 32;

/// Listens for ever.
pub(crate) async fn listen(
    kills: Arc<Mutex<Box<dyn OomKillLog>>>,
    messages: TerminationMessages,
    observed: ObservedPods,
) {
    // Before that, the pod of a container is not known.
    if observed.inventory().wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut kills = kills.lock().await;
    loop {
        let kill = kills.next().await;
        record_kill(&kill, &messages, &observed);
    }
}

/// A container's memory limit from its runtime record; None if there is no limit.
pub(crate) fn memory_limit(record: &ContainerRecord) -> Option<u64> {
    let limit = record.resources.as_ref()?.memory_limit;
    u64::try_from(limit).ok().filter(|bytes| *bytes > 0)
}

/// Container ids in a cgroup's name; one container may run in another's.
fn ids(cgroup: &str) -> impl Iterator<Item = &str> {
    let words = cgroup.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| {
        word.len() >= SHORTEST_ID && word.bytes().all(|letter| letter.is_ascii_hexdigit())
    })
}

fn record_kill(kill: &OomKill, messages: &TerminationMessages, observed: &ObservedPods) {
    let pods = observed.all();
    for id in ids(&kill.victim_cgroup) {
        let note = OomKillRecord {
            unnamed: 0,
            order: kill.order,
            at: kill.at,
            process: kill.process.clone(),
            pid: kill.pid,
            bytes: kill.resident_bytes,
            limit: None,
        };
        if !messages.note_oom_kill(id, note, kill.is_group_kill) {
            continue;
        }
        let containers = pods.iter().flat_map(|(uid, pod)| {
            pod.containers.iter().map(move |container| (uid, &container.record))
        });
        let Some((uid, record)) = containers.into_iter().find(|(_, record)| record.id == id) else {
            continue;
        };
        warn!(
            pod_uid = uid,
            container = record.name,
            process = kill.process,
            pid = kill.pid,
            resident_bytes = kill.resident_bytes,
            limit = memory_limit(record),
            "The kernel killed a process of a container for memory"
        );
        observed.request_relist(uid);
    }
}

#[cfg(test)]
mod tests;
