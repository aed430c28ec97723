//! Back-off between attempts, with jitter so that a cluster's clients do not reconnect at once.
//!
//! Rule: a plain value without a clock or randomness: the jitter is an argument. A success that was
//! short-lived does not reset it, so that an API server that drops every watch at once is not
//! hammered.

use std::time::Duration;

/// Pauses that double from the shortest to the longest. upstream: client-go
/// tools/cache/reflector.go
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackOff {
    next: Duration,
}

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);

impl BackOff {
    pub(crate) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// The next pause: between one and two times the base, by `spread` (zero to one). Never shorter
    /// than what the server asked for.
    pub(crate) fn pause(&mut self, spread: f64, asked_for: Option<Duration>) -> Duration {
        let spread = if spread.is_finite() { spread.clamp(0.0, 1.0) } else { 0.0 };
        let pause = self.next.mul_f64(1.0 + spread);
        self.next = self.next.saturating_mul(2).min(LONGEST);
        pause.max(asked_for.unwrap_or_default())
    }

    /// Records how long the attempt lasted; one that lasted longer than the longest pause resets
    /// the back-off.
    pub(crate) fn held(&mut self, span: Duration) {
        if span >= LONGEST {
            self.next = FIRST;
        }
    }
}

#[cfg(test)]
mod tests;
