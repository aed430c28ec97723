//! Runs calls that may block on a disk on separate threads, away from the async runtime's.
//!
//! Rule: each call has a thread of its own for as long as it lasts and a limit after which the
//! caller goes on without it; a fixed number may be in flight, so that a disk that hangs costs that
//! many threads and no more. No threads idle between calls. Calls that a remote file system can
//! hang for ever belong in a process of their own, which can be killed; this is for the agent's own
//! directories.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

/// Stack size: a thread that makes system calls needs little.
const STACK_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockingPoolError {
    #[error("not done after {0:?}: the file system does not answer")]
    TimedOut(Duration),
    #[error("no thread could be started for it: {0}")]
    NoThread(String),
    #[error("it ended without an answer")]
    NoResult,
}

#[derive(Debug, Clone)]
pub struct BlockingPool {
    name: &'static str,
    limit: Duration,
    permits: Arc<Semaphore>,
}

impl BlockingPool {
    /// `name` is the threads' name (15 bytes), `max_calls` how many calls may be in flight.
    pub fn new(name: &'static str, max_calls: usize, limit: Duration) -> Self {
        Self { name, limit, permits: Arc::new(Semaphore::new(max_calls)) }
    }

    pub async fn run<T, F>(&self, call: F) -> Result<T, BlockingPoolError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.run_within(self.limit, call).await
    }

    pub async fn run_within<T, F>(&self, limit: Duration, call: F) -> Result<T, BlockingPoolError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (name, permits) = (self.name, self.permits.clone());
        let answer = async move {
            let permit = permits.acquire_owned().await.map_err(|_| BlockingPoolError::NoResult)?;
            let (result_sender, answer) = oneshot::channel();
            std::thread::Builder::new()
                .name(name.to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    let outcome = call();
                    drop(permit);
                    // The caller may have gone on without it.
                    let _gone = result_sender.send(outcome);
                })
                .map_err(|error| BlockingPoolError::NoThread(error.to_string()))?;
            answer.await.map_err(|_| BlockingPoolError::NoResult)
        };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(BlockingPoolError::TimedOut(limit)))
    }
}
