//! Reduces the memory of a process at rest: when nothing has changed for a while, pages of the
//! program that only work needed are released.
//!
//! Rule: follows changes and periodic rounds; wakes for nothing else.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host_process::program_pages;
use ports::PeriodicTasks;
use tokio::time::timeout;
use tracing::{info, warn};

/// Quiet time after the last change.
const IDLE_AFTER: Duration = Duration::from_secs(20);

/// A source of changes.
pub(crate) trait ChangeCounter: Send {
    /// Waits for a version newer than `seen`, and returns it.
    fn wait_beyond(&mut self, seen: u64) -> impl Future<Output = u64> + Send;
}

/// Whether the process is at rest; clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdleMemory(Arc<AtomicBool>);

impl IdleMemory {
    /// Follows changes for ever.
    pub(crate) async fn trim_when_idle(&self, mut changes: impl ChangeCounter) -> Infallible {
        let mut seen = 0;
        loop {
            while let Ok(newer) = timeout(IDLE_AFTER, changes.wait_beyond(seen)).await {
                seen = newer;
            }
            if !give_back() {
                std::future::pending::<()>().await;
            }
            self.0.store(true, Ordering::Relaxed);
            seen = changes.wait_beyond(seen).await;
            self.0.store(false, Ordering::Relaxed);
        }
    }

    /// A periodic round found nothing to do: the pages that it needed are released again.
    pub(crate) fn on_periodic_work(&self) {
        if self.0.load(Ordering::Relaxed) {
            give_back();
        }
    }
}

impl PeriodicTasks for IdleMemory {
    fn ended(&self) {
        self.on_periodic_work();
    }
}

fn give_back() -> bool {
    match program_pages::release_clean_pages(Path::new("/proc/self")) {
        Ok(bytes) => info!(v = 4, bytes, "Nothing to do; program pages given back"),
        Err(refused) => {
            warn!(err = %refused, "Program pages stay in memory");
            return false;
        }
    }
    true
}
