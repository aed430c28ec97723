//! Counts completed rounds of the periodic tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ports::Rounds;

/// Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct FakeRounds(Arc<AtomicU64>);

impl FakeRounds {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Rounds for FakeRounds {
    fn ended(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
