//! A limited number of slots for one kind of work.
//!
//! Rule: a slot is free again when its holder is dropped. Each kind has its own [`Places`], so that
//! long-lasting work (log followers, exec streams) cannot take what short requests need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A limited number of slots.
#[derive(Debug, Clone)]
pub struct Places {
    free: Arc<Semaphore>,
}

/// One slot, held until dropped.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)) }
    }

    /// `None` if all are taken.
    pub fn try_take(&self) -> Option<Place> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(Place { _permit: permit })
    }

    /// Waits for a slot, first come first served. `None` after `longest`.
    pub async fn take(&self, longest: Duration) -> Option<Place> {
        let permit = timeout(longest, self.free.clone().acquire_owned()).await.ok()?.ok()?;
        Some(Place { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_again_when_its_holder_is_dropped() {
        let places = Places::new(1);
        let held = places.try_take().expect("a place");
        assert!(places.try_take().is_none());
        assert!(places.take(Duration::from_secs(5)).await.is_none());
        drop(held);
        assert!(places.take(Duration::from_secs(5)).await.is_some());
    }
}
