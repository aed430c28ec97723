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
use ports::Rounds;
use tokio::time::timeout;
use tracing::{info, warn};

/// Quiet time after the last change.
const QUIET: Duration = Duration::from_secs(20);

/// A source of changes.
pub(crate) trait Changes: Send {
    /// Waits for a version newer than `seen`, and returns it.
    fn beyond(&mut self, seen: u64) -> impl Future<Output = u64> + Send;
}

/// Whether the process is at rest; clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rest(Arc<AtomicBool>);

impl Rest {
    /// Follows changes for ever.
    pub(crate) async fn after_work(&self, mut changes: impl Changes) -> Infallible {
        let mut seen = 0;
        loop {
            while let Ok(newer) = timeout(QUIET, changes.beyond(seen)).await {
                seen = newer;
            }
            if !give_back() {
                std::future::pending::<()>().await;
            }
            self.0.store(true, Ordering::Relaxed);
            seen = changes.beyond(seen).await;
            self.0.store(false, Ordering::Relaxed);
        }
    }

    /// A periodic round found nothing to do: the pages that it needed are released again.
    pub(crate) fn looked_around(&self) {
        if self.0.load(Ordering::Relaxed) {
            give_back();
        }
    }
}

impl Rounds for Rest {
    fn ended(&self) {
        self.looked_around();
    }
}

fn give_back() -> bool {
    match program_pages::give_back(Path::new("/proc/self")) {
        Ok(bytes) => info!(v = 4, bytes, "Nothing to do; program pages given back"),
        Err(refused) => {
            warn!(err = %refused, "Program pages stay in memory");
            return false;
        }
    }
    true
}
