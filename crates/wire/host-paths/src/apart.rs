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
const STACK: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApartError {
    #[error("not done after {0:?}: the file system does not answer")]
    Late(Duration),
    #[error("no thread could be started for it: {0}")]
    NoThread(String),
    #[error("it ended without an answer")]
    Lost,
}

#[derive(Debug, Clone)]
pub struct Apart {
    name: &'static str,
    limit: Duration,
    places: Arc<Semaphore>,
}

impl Apart {
    /// `name` is the threads' name (15 bytes), `most` how many calls may be in flight.
    pub fn new(name: &'static str, most: usize, limit: Duration) -> Self {
        Self { name, limit, places: Arc::new(Semaphore::new(most)) }
    }

    pub async fn run<T, F>(&self, call: F) -> Result<T, ApartError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.run_within(self.limit, call).await
    }

    pub async fn run_within<T, F>(&self, limit: Duration, call: F) -> Result<T, ApartError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (name, places) = (self.name, self.places.clone());
        let answer = async move {
            let place = places.acquire_owned().await.map_err(|_| ApartError::Lost)?;
            let (told, answer) = oneshot::channel();
            std::thread::Builder::new()
                .name(name.to_owned())
                .stack_size(STACK)
                .spawn(move || {
                    let outcome = call();
                    drop(place);
                    // The caller may have gone on without it.
                    let _gone = told.send(outcome);
                })
                .map_err(|error| ApartError::NoThread(error.to_string()))?;
            answer.await.map_err(|_| ApartError::Lost)
        };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(ApartError::Late(limit)))
    }
}
