//! A process at rest holds little: when nothing has changed for a while, the pages of its program
//! that only work needed are given back.
//!
//! Rule: follows changes and what looks around anyway; wakes for nothing else.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host_process::program_pages;
use ports::Rounds;
use tokio::time::timeout;
use tracing::{info, warn};

/// So long after the last change the work counts as done.
const QUIET: Duration = Duration::from_secs(20);

/// What is followed.
pub(crate) trait Changes: Send {
    /// Waits until more has changed than this number says, and tells the new one.
    fn beyond(&mut self, seen: u64) -> impl Future<Output = u64> + Send;
}

/// Whether the process is at rest; clones are the same.
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

    /// Something looked around and found nothing to do: the pages that it needed go again.
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
