//! Limits how many CPU-bound calls to the runtime are in flight at once.
//!
//! Rule: a node that starts a hundred containers at once has all of them running later than one
//! that starts a few at a time. A call without an answer after [`PERMIT_TIMEOUT`] releases its
//! permit and goes on, so that a hanging call delays only itself. Calls that mostly wait, such as
//! one that sets up a pod's network, take no permit: waiting costs no CPU time.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Semaphore;

/// More than one per CPU, because some of the work waits for disks.
const CALLS_PER_CPU: usize = 4;
/// How long a call may hold its permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct CallLimiter(Semaphore);

impl CallLimiter {
    pub(crate) fn new(cpus: usize) -> Self {
        Self(Semaphore::new(cpus.saturating_mul(CALLS_PER_CPU).min(Semaphore::MAX_PERMITS)))
    }

    /// Waits for a permit, then runs the call to its end.
    pub(crate) async fn take<T>(&self, call: impl Future<Output = T>) -> T {
        let permit = self.0.acquire().await;
        let mut call = pin!(call);
        if let Ok(output) = tokio::time::timeout(PERMIT_TIMEOUT, &mut call).await {
            return output;
        }
        drop(permit);
        call.await
    }
}

#[cfg(test)]
mod tests;
