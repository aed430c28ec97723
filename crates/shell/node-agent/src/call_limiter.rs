//! Limits parallel calls to the runtime that cost it processor time.
//!
//! Rule: a machine that starts a hundred containers at once starts each of them slowly and all of
//! them later than one that starts a few at a time. A call that is not answered soon releases its
//! permit and goes on, so that a hanging call delays only itself. Not for calls that mostly wait
//! for something else, as a pod does for its network: waiting costs nothing, and many can wait at
//! once.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Per CPU: some of the work waits for disks.
const CALLS_PER_CPU: usize = 4;
/// After this long a call releases its permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct CallLimiter(Semaphore);

impl CallLimiter {
    pub(crate) fn new(processors: usize) -> Self {
        Self(Semaphore::new(processors.saturating_mul(CALLS_PER_CPU).min(Semaphore::MAX_PERMITS)))
    }

    /// Waits for a permit, and then for the call.
    pub(crate) async fn take<T>(&self, call: impl Future<Output = T>) -> T {
        let turn = self.0.acquire().await;
        let mut call = pin!(call);
        if let Ok(done) = tokio::time::timeout(PERMIT_TIMEOUT, &mut call).await {
            return done;
        }
        drop(turn);
        call.await
    }
}

#[cfg(test)]
mod tests;
