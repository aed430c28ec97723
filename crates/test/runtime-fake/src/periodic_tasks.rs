//! Counts completed rounds of the periodic tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ports::PeriodicTasks;

/// Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct FakePeriodicTasks(Arc<AtomicU64>);

impl FakePeriodicTasks {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl PeriodicTasks for FakePeriodicTasks {
    fn ended(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
