//! Whether the agent's main loops still iterate.
//!
//! Rules: a loop that waits beats at once and then every [`HEARTBEAT_PERIOD`], from the `select!`
//! in which it waits for its inputs; so a loop that hangs in an iteration, is not polled any more
//! or has ended falls silent. Time spent in an iteration counts. A loop that has never waited is
//! not judged: it is just starting. Wakes a waiting loop for nothing but the beat itself.
//!
//! upstream: pkg/kubelet/kubelet.go (syncLoopMonitor), a loop that ticks every second anyway

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Far below the allowed silence, and seldom enough to cost nothing.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(60);

/// Cheap to clone; all clones share one record.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoopHeartbeats {
    last: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
}

impl LoopHeartbeats {
    fn last(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A branch of the loop's `select!`; never completes.
    pub(crate) async fn beat_while_waiting(&self, name: &'static str) {
        loop {
            self.last().insert(name, Instant::now());
            tokio::time::sleep(HEARTBEAT_PERIOD).await;
        }
    }

    /// The loop that has been silent longest, and for how long.
    pub(crate) fn most_silent(&self) -> Option<(&'static str, Duration)> {
        let last = self.last();
        let (name, at) = last.iter().min_by_key(|(_, at)| **at)?;
        Some((name, at.elapsed()))
    }
}
