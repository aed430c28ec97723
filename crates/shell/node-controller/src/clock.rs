//! The controller's own clock.
//!
//! Rule: moments never go back, whatever becomes of the machine's clock, and jump ahead when the
//! machine slept, so that nobody acts on a lease that ran out meanwhile. Times that others will
//! read are the machine's own at the instant of writing.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use node_health::Moment;
use ports::ApiTime;
use tokio::time::Instant;

/// What a process has around it.
pub trait Surroundings: Send + Sync {
    /// The machine's clock.
    fn wall(&self) -> ApiTime;
    /// Any number; only spreads retries.
    fn random(&self) -> u64;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemSurroundings;

impl Surroundings for SystemSurroundings {
    fn wall(&self) -> ApiTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ApiTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

/// A sleep of the machine shorter than this is no sleep.
const SLEEP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Base {
    at: Instant,
    moment: Moment,
}

/// Makes moments. Clones agree.
#[derive(Clone)]
pub(crate) struct Clock {
    surroundings: Arc<dyn Surroundings>,
    base: Arc<Mutex<Base>>,
}

impl Clock {
    pub(crate) fn new(surroundings: Arc<dyn Surroundings>) -> Self {
        let moment = Moment::from_nanos(surroundings.wall().nanos());
        let base = Arc::new(Mutex::new(Base { at: Instant::now(), moment }));
        Self { surroundings, base }
    }

    pub(crate) fn now(&self) -> Moment {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let instant = Instant::now();
        let steady = base.moment.after(instant.saturating_duration_since(base.at));
        let wall = Moment::from_nanos(self.surroundings.wall().nanos());
        if wall.since(steady) <= SLEEP {
            return steady;
        }
        *base = Base { at: instant, moment: wall };
        wall
    }

    /// The machine's clock, for what others read.
    pub(crate) fn wall(&self) -> ApiTime {
        self.surroundings.wall()
    }

    pub(crate) fn random(&self) -> u64 {
        self.surroundings.random()
    }

    /// When the moment comes.
    pub(crate) fn instant_of(&self, moment: Moment) -> Instant {
        Instant::now() + moment.since(self.now())
    }
}

#[cfg(test)]
mod tests;
