//! Who the kernel killed for memory: kernel messages, matched to containers.
//!
//! Rules: a note is kept for each container whose id is in the victim's cgroup name, and its pod is
//! looked at again, so that a note which comes after the exit is told all the same, and one of a
//! container that was not seen yet when it is seen. The log is read from its beginning once the
//! runtime was listed: what was killed while no agent was there is told by this one, and what was told
//! before is known to each pod's memory. Where a whole group had to
//! go, the note is of the process that took too much, not of those that went with it. A container
//! that is made and killed while the runtime is being listed may lose its note.

use crate::observed::Observed;
use crate::termination::TerminationMessages;
use pod_lifecycle::MemoryKillNote;
use ports::pod_host::{MemoryKill, MemoryKills};
use ports::runtime_objects::ContainerRecord;
use std::sync::Arc;
use tokio::sync::Mutex;
use tracing::warn;

/// Shortest id that is taken for one.
const SHORTEST_ID: usize = 32;

/// Listens for ever.
pub(crate) async fn listen(
    kills: Arc<Mutex<Box<dyn MemoryKills>>>,
    messages: TerminationMessages,
    observed: Observed,
) {
    // Before that nothing is known of which pod a container is.
    if observed.inventory().wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut kills = kills.lock().await;
    loop {
        let kill = kills.next().await;
        take(&kill, &messages, &observed);
    }
}

/// What a container may use, as its runtime tells it; none where there is no limit.
pub(crate) fn memory_limit(record: &ContainerRecord) -> Option<u64> {
    let limit = record.resources.as_ref()?.memory_limit;
    u64::try_from(limit).ok().filter(|bytes| *bytes > 0)
}

/// Ids of containers in a cgroup's name; one may run in another.
fn ids(cgroup: &str) -> impl Iterator<Item = &str> {
    let words = cgroup.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| {
        word.len() >= SHORTEST_ID && word.bytes().all(|letter| letter.is_ascii_hexdigit())
    })
}

fn take(kill: &MemoryKill, messages: &TerminationMessages, observed: &Observed) {
    let pods = observed.all();
    for id in ids(&kill.victim_cgroup) {
        let note = MemoryKillNote {
            unnamed: 0,
            order: kill.order,
            at: kill.at,
            process: kill.process.clone(),
            pid: kill.pid,
            bytes: kill.resident_bytes,
            limit: None,
        };
        if !messages.note_kill(id, note, kill.with_its_group) {
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
        observed.look_at(uid);
    }
}

#[cfg(test)]
mod tests;
