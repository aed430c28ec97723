//! The restart back-off of a container that keeps exiting.
//!
//! Rules: the first restart is immediate; after that a delay counts from the time when the
//! container finished, whatever its exit code, doubles with each start up to the cap, and is reset
//! 600 s after the last start whatever the cap. A change of image or resources resets it too.
//!
//! upstream: kuberuntime_manager.go (doBackOff), kubelet.go (crash loop back-off), flowcontrol/backoff.go

use std::time::Duration;

use pod_model::pod::Container;
use ports::ApiTime;
use serde::{Deserialize, Serialize};

use crate::containers_by_name::ContainersByName;
use crate::memory::ContainerMemory;
use crate::time::{between, plus};
use crate::view::PodLifecycleSettings;

#[cfg(test)]
mod tests;

const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The tolerated clock skew between runtime and agent.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);

/// The back-off state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestartBackOff {
    /// Hash of the image and resources; the back-off resets when it changes.
    pub(crate) key: u64,
    pub(crate) delay_nanos: u64,
    /// When the delay was last increased, which is the time of the last start.
    pub(crate) updated_at: i64,
}

/// When a container may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartTiming {
    /// At once; with the new back-off state, if it changes.
    Now(Option<RestartBackOff>),
    Wait {
        until: ApiTime,
        delay: Duration,
    },
}

impl RestartBackOff {
    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos)
    }

    /// Whether it has expired at this time.
    fn is_forgotten(&self, at: ApiTime) -> bool {
        between(ApiTime::from_nanos(self.updated_at), at) > FORGOTTEN_AFTER
    }

    /// The next back-off: doubled, or the base.
    fn next(old: Option<Self>, key: u64, now: ApiTime, settings: &PodLifecycleSettings) -> Self {
        let delay = match old {
            Some(old) => old.delay().saturating_mul(2).min(settings.max_restart_period),
            None => settings.base_restart_period.min(settings.max_restart_period),
        };
        let delay_nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self { key, delay_nanos, updated_at: now.nanos() }
    }

    /// The presumed back-off of a container with this restart count and last start. For containers
    /// that another agent started: their crash loop continues where it was.
    pub(crate) fn reconstructed(
        container: &Container,
        restarts: u32,
        last_start: ApiTime,
        settings: &PodLifecycleSettings,
    ) -> Option<Self> {
        let doublings = restarts.checked_sub(1)?.min(16);
        let delay = settings
            .base_restart_period
            .saturating_mul(1 << doublings)
            .min(settings.max_restart_period);
        let delay_nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Some(Self { key: key(container), delay_nanos, updated_at: last_start.nanos() })
    }
}

/// When the container may be started.
pub(crate) fn start_timing(
    container: &Container,
    containers_by_name: &ContainersByName<'_>,
    memory: Option<&ContainerMemory>,
    settings: &PodLifecycleSettings,
    now: ApiTime,
) -> StartTiming {
    let mut exited = containers_by_name.exited(&container.name);
    let Some(last) = exited.next() else { return StartTiming::Now(None) };
    let key = key(container);
    let known = memory
        .and_then(|memory| memory.back_off)
        .filter(|known| known.key == key && !known.is_forgotten(now));
    let finished = ApiTime::from_nanos(last.finished_at);

    // One that we killed in order to restart it is judged by its predecessor: a container that
    // fails its probe after running well restarts at once.
    let killed = memory.is_some_and(|memory| memory.killed.as_deref() == Some(&*last.id));
    if killed {
        let Some(before) = exited.next() else { return StartTiming::Now(None) };
        let ran = between(ApiTime::from_nanos(before.finished_at), finished);
        if known.is_none_or(|known| ran >= known.delay()) {
            return StartTiming::Now(Some(RestartBackOff::next(known, key, now, settings)));
        }
    }

    let Some(known) = known else {
        return StartTiming::Now(Some(RestartBackOff::next(None, key, now, settings)));
    };
    // A finish time well in the future was recorded before the clock was set back; the delay then
    // counts from the last known start.
    let is_ahead = between(now, finished) > MAX_CLOCK_SKEW;
    let finished = if is_ahead { ApiTime::from_nanos(known.updated_at) } else { finished };
    let until = plus(finished, known.delay());
    if now < until {
        let forgotten = plus(ApiTime::from_nanos(known.updated_at), FORGOTTEN_AFTER);
        let forgotten = plus(forgotten, Duration::from_nanos(1));
        return StartTiming::Wait { until: until.min(forgotten), delay: known.delay() };
    }
    StartTiming::Now(Some(RestartBackOff::next(Some(known), key, now, settings)))
}

/// The key of a container's back-off: a hash of its image and resources.
pub(crate) fn key(container: &Container) -> u64 {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    fnv64(&[&container.image, &resources])
}

pub(crate) fn fnv64(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([b'/']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}
