//! A token bucket, as a value.
//!
//! Rule: knows no clock; given the time, it returns how long to wait for the next token.

use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    /// None: no limit.
    pause: Option<Duration>,
    burst: u32,
    /// When the bucket would have been empty; each token advances it.
    emptied: Instant,
}

impl TokenBucket {
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let pause = (per_second > 0).then(|| Duration::from_secs(1) / per_second);
        let burst = burst.max(1);
        let filled = pause.unwrap_or_default().saturating_mul(burst);
        Self { pause, burst, emptied: now.checked_sub(filled).unwrap_or(now) }
    }

    /// When the next token may be taken.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        self.pause.map_or(now, |pause| (self.emptied + pause).max(now))
    }

    /// Takes a token that is ready.
    pub(super) fn take(&mut self, now: Instant) {
        let Some(pause) = self.pause else { return };
        let fullest = now.checked_sub(pause.saturating_mul(self.burst)).unwrap_or(self.emptied);
        self.emptied = self.emptied.max(fullest) + pause;
    }
}
