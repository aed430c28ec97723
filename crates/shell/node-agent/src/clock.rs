//! The agent's clock: wall time that never goes back silently.
//!
//! Rule: time runs with the monotonic clock from an anchor. When the system clock is set forward
//! the anchor follows at once. When it is set back the anchor follows too and the jump is counted,
//! so that tasks which hold older times (pod workers) can start over from what is on disk. In tests
//! the anchor is given and time is tokio's, paused or not.

use ports::ApiTime;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::Instant;

/// Smaller differences are the clock being slewed, and harmless.
const JUMP: i64 = 2_000_000_000;

/// Cheap to clone; all clones are one clock.
#[derive(Debug, Clone)]
pub(crate) struct AgentClock {
    anchor: Arc<Mutex<Anchor>>,
    /// How often the clock has gone back.
    jumps: Arc<watch::Sender<u64>>,
    follows_system_clock: bool,
}

#[derive(Debug)]
struct Anchor {
    at: Instant,
    wall: i64,
    /// The last reading. Readings strictly increase, so that "after" is never in doubt.
    last: i64,
}

impl AgentClock {
    /// The system clock.
    pub(crate) fn system() -> Self {
        Self::new(machine_time(), true)
    }

    /// A clock that starts at `now` and follows tokio's time only.
    #[cfg(test)]
    pub(crate) fn starting_at(now: ApiTime) -> Self {
        Self::new(now.nanos(), false)
    }

    /// Sets a test's clock back, as the system clock may be.
    #[cfg(test)]
    pub(crate) fn set_back(&self, by: Duration) {
        let now = self.now().nanos();
        let wall = now.saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX));
        let went_back = {
            let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
            anchor.read(Instant::now(), Some(wall)).1
        };
        if went_back {
            self.jumps.send_modify(|count| *count += 1);
        }
    }

    fn new(wall: i64, follows_system_clock: bool) -> Self {
        let anchor = Anchor { at: Instant::now(), wall, last: i64::MIN };
        Self {
            anchor: Arc::new(Mutex::new(anchor)),
            jumps: Arc::new(watch::Sender::new(0)),
            follows_system_clock,
        }
    }

    pub(crate) fn now(&self) -> ApiTime {
        let machine = self.follows_system_clock.then(machine_time);
        let (now, went_back) = {
            let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
            anchor.read(Instant::now(), machine)
        };
        if went_back {
            self.jumps.send_modify(|count| *count += 1);
        }
        ApiTime::from_nanos(now)
    }

    /// The time left until `at`; zero if it has passed.
    pub(crate) fn until(&self, at: ApiTime) -> Duration {
        let nanos = at.nanos().saturating_sub(self.now().nanos());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Changes whenever the clock has gone back.
    pub(crate) fn jumps(&self) -> watch::Receiver<u64> {
        self.jumps.subscribe()
    }
}

impl Anchor {
    /// The current time, and whether it is earlier than the last reading.
    fn read(&mut self, instant: Instant, machine: Option<i64>) -> (i64, bool) {
        let passed = instant.saturating_duration_since(self.at).as_nanos();
        let own = self.wall.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        match machine {
            Some(machine) if machine.abs_diff(own) > JUMP.unsigned_abs() => {
                let went_back = machine < own;
                let last = if went_back { i64::MIN } else { self.last };
                *self = Self { at: instant, wall: machine, last };
                (self.strictly_later(machine), went_back)
            }
            _ => (self.strictly_later(own), false),
        }
    }

    fn strictly_later(&mut self, time: i64) -> i64 {
        self.last = time.max(self.last.saturating_add(1));
        self.last
    }
}

fn machine_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// `time` plus `by`.
pub(crate) fn later(time: ApiTime, by: Duration) -> ApiTime {
    let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
    ApiTime::from_nanos(time.nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests;
