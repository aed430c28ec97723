//! The controller's own clock.
//!
//! Rule: times never go back and never jump when the wall clock is set. They follow the kernel's
//! boot-time clock, which runs during suspend, so that no instance acts on a lease that expired
//! meanwhile. Timestamps that others will read are wall-clock times at the time of writing.

use std::sync::Arc;
use std::time::Duration;

use node_health::ControllerTime;
use ports::ApiTime;
use tokio::time::Instant;

/// The process's environment: clocks and randomness.
pub trait SystemEnvironment: Send + Sync {
    /// The wall clock, which can be set.
    fn wall(&self) -> ApiTime;
    /// Time since any fixed point. Cannot be set, and runs during suspend.
    fn since_boot(&self) -> Duration;
    /// Any number; only for jitter.
    fn random(&self) -> u64;
}

/// Source of the controller's times. Clones agree.
#[derive(Clone)]
pub(crate) struct ControllerClock {
    surroundings: Arc<dyn SystemEnvironment>,
    /// The wall clock and the boot-time clock when this clock was created.
    began: (ControllerTime, Duration),
}

impl ControllerClock {
    pub(crate) fn new(surroundings: Arc<dyn SystemEnvironment>) -> Self {
        let instant = ControllerTime::from_nanos(surroundings.wall().nanos());
        let began = (instant, surroundings.since_boot());
        Self { surroundings, began }
    }

    pub(crate) fn now(&self) -> ControllerTime {
        let (instant, boot) = self.began;
        instant.after(self.surroundings.since_boot().saturating_sub(boot))
    }

    /// The wall clock, for timestamps that others read.
    pub(crate) fn wall(&self) -> ApiTime {
        self.surroundings.wall()
    }

    pub(crate) fn random(&self) -> u64 {
        self.surroundings.random()
    }

    /// The tokio instant of this time, if the machine is not suspended.
    pub(crate) fn instant_of(&self, instant: ControllerTime) -> Instant {
        let now = Instant::now();
        // Beyond the range of `Instant`: thirty years from now is as good.
        let most = Duration::from_secs(30 * 365 * 86_400);
        now + instant.since(self.now()).min(most)
    }
}

#[cfg(test)]
mod tests;
