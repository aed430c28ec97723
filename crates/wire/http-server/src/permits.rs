//! A limited number of slots for one kind of work.
//!
//! Rule: a slot is free again when its holder is dropped. Each kind has its own [`WorkPermits`], so that
//! long-lasting work (log followers, exec streams) cannot take what short requests need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A limited number of slots.
#[derive(Debug, Clone)]
pub struct WorkPermits {
    free: Arc<Semaphore>,
}

/// One slot, held until dropped.
#[derive(Debug)]
pub struct WorkPermit {
    _permit: OwnedSemaphorePermit,
}

impl WorkPermits {
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)) }
    }

    /// `None` if all are taken.
    pub fn try_acquire(&self) -> Option<WorkPermit> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(WorkPermit { _permit: permit })
    }

    /// Waits for a slot, first come first served. `None` after `max_duration`.
    pub async fn acquire(&self, max_duration: Duration) -> Option<WorkPermit> {
        let permit = timeout(max_duration, self.free.clone().acquire_owned()).await.ok()?.ok()?;
        Some(WorkPermit { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dropped_permit_is_available_again() {
        let permits = WorkPermits::new(1);
        let permit = permits.try_acquire().expect("a place");
        assert!(permits.try_acquire().is_none());
        assert!(permits.acquire(Duration::from_secs(5)).await.is_none());
        drop(permit);
        assert!(permits.acquire(Duration::from_secs(5)).await.is_some());
    }
}
