//! Turns at the runtime: what costs processor time there is begun in turns.
//!
//! Rule: a machine that starts a hundred containers at once starts each of them slowly and all of them
//! later than one that starts a few at a time. One that is not answered soon gives up its turn and goes
//! on, so that one that hangs delays only itself. Not for what may wait for somebody else, as a pod
//! does for a network of its own: waiting costs nothing, and many can wait at once.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Semaphore;

/// For each processor of the machine: some of the work is waiting for disks.
const FOR_EACH_PROCESSOR: usize = 4;
/// How long a call keeps others waiting.
const KEEPS_ITS_TURN: Duration = Duration::from_secs(2);

pub(crate) struct Turns(Semaphore);

impl Turns {
    pub(crate) fn new(processors: usize) -> Self {
        Self(Semaphore::new(
            processors.saturating_mul(FOR_EACH_PROCESSOR).min(Semaphore::MAX_PERMITS),
        ))
    }

    /// Waits for a turn, and then for the call.
    pub(crate) async fn take<T>(&self, call: impl Future<Output = T>) -> T {
        let turn = self.0.acquire().await;
        let mut call = pin!(call);
        if let Ok(done) = tokio::time::timeout(KEEPS_ITS_TURN, &mut call).await {
            return done;
        }
        drop(turn);
        call.await
    }
}

#[cfg(test)]
mod tests;
