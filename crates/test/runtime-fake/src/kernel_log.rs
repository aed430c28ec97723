//! A fake kernel log of OOM kills: it outlives the agents of a test, and each reader starts at the
//! oldest record.

use ports::PortFuture;
use ports::pod_host::{OomKill, OomKillLog};
use std::sync::Arc;
use tokio::sync::watch;

/// Cheap to clone; clones share one log.
#[derive(Debug, Clone)]
pub struct FakeKernelLog(Arc<watch::Sender<Vec<OomKill>>>);

impl Default for FakeKernelLog {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }
}

/// An OOM kill to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct FakeOomKill<'a> {
    /// Nanoseconds since the epoch.
    pub at: i64,
    pub victim_cgroup: &'a str,
    pub process: &'a str,
    pub pid: i32,
    /// Whether it belongs to the previous record's group kill.
    pub is_group_kill: bool,
}

impl FakeKernelLog {
    /// Records an OOM kill in that cgroup.
    pub fn emit(&self, victim_cgroup: &str, process: &str, pid: i32) {
        self.emit_kill(FakeOomKill { at: 0, victim_cgroup, process, pid, is_group_kill: false });
    }

    pub fn emit_kill(&self, kill: FakeOomKill<'_>) {
        let FakeOomKill { at, victim_cgroup, process, pid, is_group_kill } = kill;
        self.0.send_modify(|kills| {
            kills.push(OomKill {
                at,
                order: kills.len() as u64 + 1,
                process: process.to_owned(),
                pid,
                limited_cgroup: victim_cgroup.to_owned(),
                victim_cgroup: victim_cgroup.to_owned(),
                resident_bytes: 4096,
                is_group_kill,
            });
        });
    }

    /// A reader that begins with the oldest record.
    pub fn read(&self) -> Box<dyn OomKillLog> {
        Box::new(KernelLogReader { log: self.0.subscribe(), next: 0 })
    }
}

struct KernelLogReader {
    log: watch::Receiver<Vec<OomKill>>,
    next: usize,
}

impl OomKillLog for KernelLogReader {
    fn next(&mut self) -> PortFuture<'_, OomKill> {
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
