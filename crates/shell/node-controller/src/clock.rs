//! The controller's own clock.
//!
//! Rule: moments never go back and never jump, whatever becomes of the machine's clock of the day:
//! they go on as the kernel's clock since boot does, which runs while the machine sleeps, so that
//! nobody acts on a lease that ran out meanwhile. Times that others will read are the machine's own
//! at the instant of writing.

use std::sync::Arc;
use std::time::Duration;

use node_health::Moment;
use ports::ApiTime;
use tokio::time::Instant;

/// What a process has around it.
pub trait Surroundings: Send + Sync {
    /// The machine's clock of the day, which anybody may set.
    fn wall(&self) -> ApiTime;
    /// Time since any fixed moment. Nobody can set it, and it goes on while the machine sleeps.
    fn since_boot(&self) -> Duration;
    /// Any number; only spreads retries.
    fn random(&self) -> u64;
}

/// Makes moments. Clones agree.
#[derive(Clone)]
pub(crate) struct Clock {
    surroundings: Arc<dyn Surroundings>,
    /// What the clock of the day showed when this clock was made, and the clock since boot.
    began: (Moment, Duration),
}

impl Clock {
    pub(crate) fn new(surroundings: Arc<dyn Surroundings>) -> Self {
        let moment = Moment::from_nanos(surroundings.wall().nanos());
        let began = (moment, surroundings.since_boot());
        Self { surroundings, began }
    }

    pub(crate) fn now(&self) -> Moment {
        let (moment, boot) = self.began;
        moment.after(self.surroundings.since_boot().saturating_sub(boot))
    }

    /// The machine's clock, for what others read.
    pub(crate) fn wall(&self) -> ApiTime {
        self.surroundings.wall()
    }

    pub(crate) fn random(&self) -> u64 {
        self.surroundings.random()
    }

    /// When the moment comes, if the machine stays awake.
    pub(crate) fn instant_of(&self, moment: Moment) -> Instant {
        let now = Instant::now();
        // One beyond all counting is as good as one in thirty years.
        let most = Duration::from_secs(30 * 365 * 86_400);
        now + moment.since(self.now()).min(most)
    }
}

#[cfg(test)]
mod tests;
