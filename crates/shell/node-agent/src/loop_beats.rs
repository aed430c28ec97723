//! Whether the agent's main loops still come round.
//!
//! Rules: a loop that waits says so, at once and then every [`BEAT`], from the very place where it
//! waits for things to happen; so a loop that hangs in what it does, is not run any more or has ended
//! falls silent. What is done in the loop's turn counts as long as it takes. A loop that has never
//! waited is not judged: it is just starting. Wakes a waiting loop for nothing but the beat itself.
//!
//! upstream: pkg/kubelet/kubelet.go (syncLoopMonitor), a loop that ticks every second anyway

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Far below what is forgiven, and seldom enough to cost nothing.
const BEAT: Duration = Duration::from_secs(60);

/// Cheap to clone; all clones are one record.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoopBeats {
    last: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
}

impl LoopBeats {
    fn last(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the place where the loop waits: one of the things that it waits for, which never comes.
    pub(crate) async fn keep(&self, name: &'static str) {
        loop {
            self.last().insert(name, Instant::now());
            tokio::time::sleep(BEAT).await;
        }
    }

    /// The loop that has been silent for longest, and for how long.
    pub(crate) fn most_silent(&self) -> Option<(&'static str, Duration)> {
        let last = self.last();
        let (name, at) = last.iter().min_by_key(|(_, at)| **at)?;
        Some((name, at.elapsed()))
    }
}
