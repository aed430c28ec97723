//! Follows the kernel's log and reports OOM kills.
//!
//! Rules: event-driven: one descriptor that wakes when the kernel writes. Records that were
//! overwritten before they were read are skipped, and their OOM kills are not reported. Records
//! that arrive while the log is followed get the current time; only older ones are dated by the
//! kernel's timestamps, which drift from every other clock by seconds in a day.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ports::PortFuture;
use ports::pod_host::{OomKill, OomKillLog};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::io::unix::AsyncFd;
use tracing::warn;

use crate::oom_kill_log::{KmsgRecord, OomKillParser};

#[cfg(test)]
mod tests;

/// The kernel's own limit for one record.
const MAX_RECORD_BYTES: usize = 8192;

/// Records read before the task yields.
const BATCH: usize = 256;

const NANOSECONDS: i64 = 1_000_000_000;

#[derive(Debug, thiserror::Error)]
#[error("open the kernel's log {path}: {source}", path = path.display())]
pub struct KernelLogError {
    path: PathBuf,
    source: std::io::Error,
}

/// The first record to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelLogStart {
    /// The oldest record still in the log: an agent that was away gets the OOM kills in between.
    Oldest,
    Now,
}

#[derive(Debug)]
pub struct KernelLog {
    descriptor: AsyncFd<OwnedFd>,
    kills: OomKillParser,
    ready: VecDeque<OomKill>,
    /// All older records have been read.
    at_end: bool,
}

impl KernelLog {
    /// Opens `/dev/kmsg`. Must be called within a tokio runtime.
    pub fn open(since: KernelLogStart) -> Result<Self, KernelLogError> {
        Self::open_at(Path::new("/dev/kmsg"), since)
    }

    fn open_at(path: &Path, since: KernelLogStart) -> Result<Self, KernelLogError> {
        let failed = |source: std::io::Error| KernelLogError { path: path.to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        if since == KernelLogStart::Now {
            rustix::fs::seek(&descriptor, SeekFrom::End(0))
                .map_err(|errno| failed(errno.into()))?;
        }
        #[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
        let descriptor = AsyncFd::new(descriptor).map_err(failed)?;
        let at_end = since == KernelLogStart::Now;
        Ok(Self { descriptor, kills: OomKillParser::default(), ready: VecDeque::new(), at_end })
    }

    async fn follow(&mut self) -> OomKill {
        loop {
            if let Some(kill) = self.ready.pop_front() {
                return kill;
            }
            match self.descriptor.readable().await {
                Ok(mut guard) => {
                    let into = (&mut self.kills, &mut self.ready);
                    match read_some(guard.get_inner(), into, self.at_end) {
                        Ok(()) => {}
                        Err(Errno::AGAIN) => {
                            guard.clear_ready();
                            self.at_end = true;
                        }
                        Err(errno) => wait_forever(errno.into()).await,
                    }
                }
                Err(error) => wait_forever(error).await,
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A log that cannot be read any more gives no OOM kills until the agent starts again. The counts
/// of the cgroups' files do not replace it: which of the two is followed is chosen at the start.
async fn wait_forever(error: std::io::Error) {
    warn!(%error, "the kernel's log cannot be followed any more");
    std::future::pending::<()>().await;
}

fn read_some(
    descriptor: &OwnedFd,
    (kills, ready): (&mut OomKillParser, &mut VecDeque<OomKill>),
    is_new: bool,
) -> Result<(), Errno> {
    let mut buffer = [0; MAX_RECORD_BYTES];
    for _ in 0..BATCH {
        let length = match rustix::io::read(descriptor, &mut buffer) {
            Ok(0) => return Err(Errno::AGAIN),
            Ok(length) => length,
            // Overwritten before it was read, or longer than any record: continue with the next
            // one.
            Err(Errno::PIPE | Errno::INVAL | Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        let text = String::from_utf8_lossy(&buffer[..length]);
        let Some(record) = KmsgRecord::parse(&text) else { continue };
        if let Some(kill) = kills.take(record.text) {
            ready.push_back(OomKill {
                at: if is_new { now(ClockId::Realtime) } else { since_epoch(record.at) },
                order: record.number.saturating_add(1),
                process: kill.process,
                pid: kill.pid,
                limited_cgroup: kill.limited,
                victim_cgroup: kill.victim,
                resident_bytes: kill.resident_bytes,
                is_group_kill: kill.is_group_kill,
            });
        }
    }
    Ok(())
}

/// Timestamps count from boot; converts one to wall-clock time by its age.
fn since_epoch(microseconds: i64) -> i64 {
    let ago = now(ClockId::Monotonic).saturating_sub(microseconds.saturating_mul(1000));
    now(ClockId::Realtime).saturating_sub(ago.max(0))
}

fn now(clock: ClockId) -> i64 {
    let time: Timespec = clock_gettime(clock);
    time.tv_sec * NANOSECONDS + time.tv_nsec
}

impl OomKillLog for KernelLog {
    fn next(&mut self) -> PortFuture<'_, OomKill> {
        Box::pin(self.follow())
    }
}
