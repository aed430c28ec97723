//! Who the kernel killed for memory: kernel messages, matched to containers.
//!
//! Rule: a note is kept for a container whose id is in the victim's cgroup name, and its pod is
//! looked at again, so that a note which comes after the exit is told all the same.

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

fn take(kill: &MemoryKill, messages: &TerminationMessages, observed: &Observed) {
    for (uid, pod) in observed.all() {
        for container in &pod.containers {
            let record = &container.record;
            if record.id.len() < SHORTEST_ID || !kill.victim_cgroup.contains(&record.id) {
                continue;
            }
            let limit = memory_limit(record);
            warn!(
                pod_uid = uid,
                container = record.name,
                process = kill.process,
                pid = kill.pid,
                anonymous_bytes = kill.anonymous_bytes,
                limit,
                "The kernel killed a process of a container for memory"
            );
            let note = MemoryKillNote {
                unnamed: 0,
                process: kill.process.clone(),
                pid: kill.pid,
                bytes: kill.anonymous_bytes,
                limit,
            };
            messages.note_kill(&record.id, note);
            observed.look_at(&uid);
        }
    }
}
