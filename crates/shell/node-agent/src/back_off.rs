//! Growing delays between attempts.
//!
//! Rule: a plain value that counts attempts and knows no clock. No jitter: the agent talks to peers
//! on its own machine, where attempts of many nodes do not meet.

use std::time::Duration;

/// Delays that double from the first to the longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExponentialBackOff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl ExponentialBackOff {
    pub(crate) fn new(first: Duration, longest: Duration) -> ExponentialBackOff {
        ExponentialBackOff { first, longest, next: first }
    }

    /// The delay to wait now; the next one is twice as long.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// Starts over with the first delay.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests;
