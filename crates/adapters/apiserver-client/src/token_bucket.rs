//! Client-side rate limiting.
//!
//! Rule: a plain value; the time is an argument and the wait is the result. A caller that takes a
//! token owns it and waits exactly as long as `take` returned, so waiters keep their order. Tokens
//! that are due close together become due at the last one's time, so that a long queue wakes the
//! process once for a few of them.

use std::time::Duration;

/// A rate in requests per second, and the burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    pub per_second: f64,
    pub burst: u32,
}

impl RateLimit {
    /// client-go's default.
    pub const USUAL: Self = Self { per_second: 5.0, burst: 10 };

    /// `None` if the rate is zero or less: then there is no limit.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        let burst = burst.max(1);
        (per_second.is_finite() && per_second > 0.0).then_some(Self { per_second, burst })
    }
}

/// So many become due together, unless that takes longer than [`MAX_STEP`].
const BATCH_SIZE: f64 = 4.0;
const MAX_STEP: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(crate) struct RequestTokenBucket {
    rate: RateLimit,
    /// Negative while waiters have tokens that are not due yet.
    tokens: f64,
    filled_at: Duration,
}

impl RequestTokenBucket {
    pub(crate) fn new(rate: RateLimit) -> Self {
        Self { rate, tokens: f64::from(rate.burst), filled_at: Duration::ZERO }
    }

    /// Takes a token; returns how long to wait before using it. The time counts from any fixed
    /// origin.
    pub(crate) fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(now);
        let filled = self.tokens + passed * self.rate.per_second;
        self.tokens = filled.min(f64::from(self.rate.burst)) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        let wait = Duration::try_from_secs_f64(-self.tokens / self.rate.per_second);
        wait.map_or(Duration::MAX, |wait| self.next_step(now.saturating_add(wait)) - now)
    }

    /// How long a caller that took a token now would wait.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.clone().take(now)
    }

    /// The first time at which tokens become due that is not before this one.
    fn next_step(&self, turn: Duration) -> Duration {
        let step = Duration::try_from_secs_f64(BATCH_SIZE / self.rate.per_second);
        let step = step.map_or(MAX_STEP, |step| step.min(MAX_STEP)).as_nanos().max(1);
        let late = turn.as_nanos() % step;
        let rest = if late == 0 { 0 } else { step - late };
        turn.saturating_add(Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX)))
    }

    /// Returns a token that was not used.
    pub(crate) fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(f64::from(self.rate.burst));
    }
}

#[cfg(test)]
mod tests;
