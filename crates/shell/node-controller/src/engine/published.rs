//! Gauges of the cluster's current state.
//!
//! Rule: updated after a change, and at most once a second; no wake-up without a change.

use std::time::Duration;

use node_health::ControllerTime;

use super::Engine;
use crate::counters::ZoneGauge;

/// Shortest time between two updates.
const MIN_PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// The last update, and whether it is outdated.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublishedMetrics {
    changed: bool,
    next: ControllerTime,
}

impl PublishedMetrics {
    pub(super) fn new(now: ControllerTime) -> Self {
        Self { changed: true, next: now }
    }

    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    /// When the next update is due, if at all.
    pub(super) fn wake(&self) -> Option<ControllerTime> {
        self.changed.then_some(self.next)
    }
}

impl Engine {
    pub(super) fn publish(&mut self, now: ControllerTime) {
        if self.published.wake().is_none_or(|when| when > now) {
            return;
        }
        self.published = PublishedMetrics { changed: false, next: now.after(MIN_PUBLISH_INTERVAL) };
        // A zone without nodes keeps its series, as upstream.
        let zones = self.lifecycle.zones().iter().map(|(_, zone)| ZoneGauge {
            zone: zone.key().as_str().to_owned(),
            ready: zone.ready(),
            not_ready: zone.not_ready(),
        });
        self.shared.counters.zones(zones.collect());
        self.shared.counters.ranges(self.ranges_now());
        self.shared.counters.known(self.names.len(), self.pods.len());
    }
}
