//! What the metrics show of the cluster as it is.
//!
//! Rule: told when something has changed, and at most once a second; nobody is woken to tell the
//! same again.

use std::time::Duration;

use node_health::Moment;

use super::Engine;
use crate::counters::ZoneNow;

/// No two tellings are closer.
const BETWEEN: Duration = Duration::from_secs(1);

/// What has been told, and whether that still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    changed: bool,
    next: Moment,
}

impl Published {
    pub(super) fn new(now: Moment) -> Self {
        Self { changed: true, next: now }
    }

    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    /// When it is to be told, if at all.
    pub(super) fn wake(&self) -> Option<Moment> {
        self.changed.then_some(self.next)
    }
}

impl Engine {
    pub(super) fn publish(&mut self, now: Moment) {
        if self.published.wake().is_none_or(|when| when > now) {
            return;
        }
        self.published = Published { changed: false, next: now.after(BETWEEN) };
        // A zone without nodes keeps its line, as upstream's does.
        let zones = self.lifecycle.zones().iter().map(|(_, zone)| ZoneNow {
            zone: zone.key().as_str().to_owned(),
            ready: zone.ready(),
            not_ready: zone.not_ready(),
        });
        self.shared.counters.zones(zones.collect());
        self.shared.counters.ranges(self.ranges_now());
        self.shared.counters.known(self.names.len(), self.pods.len());
    }
}
