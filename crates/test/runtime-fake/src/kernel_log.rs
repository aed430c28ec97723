//! A kernel log in memory: it outlives every agent, and each reader starts at its beginning.

use ports::PortFuture;
use ports::pod_host::{MemoryKill, MemoryKills};
use std::sync::Arc;
use tokio::sync::watch;

/// Cheap to clone; clones share one log.
#[derive(Debug, Clone)]
pub struct FakeKernelLog(Arc<watch::Sender<Vec<MemoryKill>>>);

impl Default for FakeKernelLog {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }
}

impl FakeKernelLog {
    /// Records an OOM kill in that cgroup.
    pub fn tell(&self, victim_cgroup: &str, process: &str, pid: i32) {
        self.tell_at(0, victim_cgroup, (process, pid), false);
    }

    /// The same with a timestamp, and whether it belongs to the previous record's group kill.
    pub fn tell_at(
        &self,
        at: i64,
        victim_cgroup: &str,
        (process, pid): (&str, i32),
        with_its_group: bool,
    ) {
        self.0.send_modify(|kills| {
            kills.push(MemoryKill {
                at,
                order: kills.len() as u64 + 1,
                process: process.to_owned(),
                pid,
                limited_cgroup: victim_cgroup.to_owned(),
                victim_cgroup: victim_cgroup.to_owned(),
                resident_bytes: 4096,
                with_its_group,
            });
        });
    }

    /// A reader that begins with the oldest record.
    pub fn read(&self) -> Box<dyn MemoryKills> {
        Box::new(Reader { log: self.0.subscribe(), next: 0 })
    }
}

struct Reader {
    log: watch::Receiver<Vec<MemoryKill>>,
    next: usize,
}

impl MemoryKills for Reader {
    fn next(&mut self) -> PortFuture<'_, MemoryKill> {
        Box::pin(async move {
            let next = self.next;
            let more = self.log.wait_for(|kills| kills.len() > next).await;
            let kill = more.ok().and_then(|kills| kills.get(next).cloned());
            match kill {
                Some(kill) => {
                    self.next += 1;
                    kill
                }
                None => std::future::pending().await,
            }
        })
    }
}
