//! Back-off between attempts, with jitter so that a cluster's clients do not reconnect at once.
//!
//! Rule: a plain value without a clock or randomness: the jitter is an argument. A success that was
//! short-lived does not reset it, so that an API server that drops every watch at once is not
//! hammered.

use std::time::Duration;

/// Pauses that double from the shortest to the longest. upstream: client-go
/// tools/cache/reflector.go
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchBackOff {
    next: Duration,
}

const INITIAL_BACK_OFF: Duration = Duration::from_millis(800);
const MAX_BACK_OFF: Duration = Duration::from_secs(30);

impl WatchBackOff {
    pub(crate) const fn new() -> Self {
        Self { next: INITIAL_BACK_OFF }
    }

    /// The next pause: between one and two times the base, by `jitter` (zero to one). Never shorter
    /// than what the server asked for.
    pub(crate) fn pause(&mut self, jitter: f64, server_pause: Option<Duration>) -> Duration {
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
        let pause = self.next.mul_f64(1.0 + jitter);
        self.next = self.next.saturating_mul(2).min(MAX_BACK_OFF);
        pause.max(server_pause.unwrap_or_default())
    }

    /// Records how long the attempt lasted; one that lasted longer than the longest pause resets
    /// the back-off.
    pub(crate) fn record_lifetime(&mut self, span: Duration) {
        if span >= MAX_BACK_OFF {
            self.next = INITIAL_BACK_OFF;
        }
    }
}

#[cfg(test)]
mod tests;
