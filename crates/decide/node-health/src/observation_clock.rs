//! The observation clock: it advances only while the view of the cluster is known to be complete.
//!
//! A node's silence is measured on this clock, never on the wall clock. It advances to the time up
//! to which the view is proven complete (a watch event, a bookmark, a live read). A step larger
//! than `largest_gap` means that the controller was stopped, stalled or disconnected, and adds
//! nothing. So a stalled process or an API server outage adds no silence to any node, and resuming
//! costs one addition instead of a walk over all nodes. After such an absence the clock stands
//! still for the settling time, so that nodes past their grace period can report first, and the
//! controller acts on no silent node. After a start the clock runs at once, since every grace
//! period starts fresh, but actions wait for the settling time all the same.

use std::time::Duration;

use crate::time::ControllerTime;

/// A point on the observation clock: nanoseconds observed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObservedTime(u64);

impl ObservedTime {
    /// This point plus `span` of observed time.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Observed time since `earlier`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The observation clock's state: observed time, and the time up to which the view is proven.
#[derive(Clone, Copy, Debug)]
pub struct ObservationClock {
    observed_time: ObservedTime,
    /// The view is proven complete up to this time.
    through: Option<ControllerTime>,
    /// When observation started or resumed after a gap; the settling time is counted from here.
    resumed: ControllerTime,
    /// Time before this does not count as observed.
    counts_from: ControllerTime,
    largest_gap: Duration,
    settling: Duration,
}

impl ObservationClock {
    /// A clock that has observed nothing yet. Steps beyond `largest_gap` count as absence;
    /// `settling` is how long nodes get to report after one.
    pub fn new(largest_gap: Duration, settling: Duration) -> Self {
        let (resumed, counts_from) = (ControllerTime::default(), ControllerTime::default());
        let observed_time = ObservedTime::default();
        Self { observed_time, through: None, resumed, counts_from, largest_gap, settling }
    }

    /// Records that the view is complete up to this time. Earlier times change nothing.
    pub fn observed_through(&mut self, proven_through: ControllerTime) -> ObservedTime {
        match self.through {
            Some(through) if proven_through <= through => {}
            Some(through) if proven_through.since(through) > self.largest_gap => {
                self.resumed = proven_through;
                self.counts_from = self.settled_at();
                self.through = Some(proven_through);
            }
            Some(through) => {
                self.observed_time = self.latest_possible(proven_through);
                // Settling needs a steady view: a pause that would otherwise be harmless restarts
                // it.
                let pause = proven_through.since(through) > self.largest_gap / 2;
                if pause && through < self.settled_at() {
                    let stands_still = self.counts_from > through;
                    self.resumed = proven_through;
                    if stands_still {
                        self.counts_from = self.settled_at();
                    }
                }
                self.through = Some(proven_through);
            }
            None => {
                self.resumed = proven_through;
                self.counts_from = proven_through;
                self.through = Some(proven_through);
            }
        }
        self.observed_time
    }

    /// Time observed so far.
    pub fn observed_time(&self) -> ObservedTime {
        self.observed_time
    }

    /// The latest value this clock can have at `now`, whatever is proven later: an observation made
    /// now must not be dated too early.
    pub fn latest_possible(&self, now: ControllerTime) -> ObservedTime {
        match self.through {
            Some(through) if now.since(through) <= self.largest_gap => {
                self.observed_time.after(now.since(through.max(self.counts_from)))
            }
            _ => self.observed_time,
        }
    }

    /// The time up to which the view is proven, if any.
    pub fn through(&self) -> Option<ControllerTime> {
        self.through
    }

    /// Whether the view is fresh enough to act on a silent node.
    pub fn is_fresh(&self, now: ControllerTime) -> bool {
        self.through.is_some_and(|through| now.since(through) <= self.largest_gap)
    }

    /// Whether the controller may mark nodes Unknown, taint them or evict: the view is fresh, and
    /// proven to the end of the settling time.
    pub fn may_act(&self, now: ControllerTime) -> bool {
        self.is_fresh(now) && self.through.is_some_and(|through| through >= self.settled_at())
    }

    /// When the settling time ends.
    pub fn settled_at(&self) -> ControllerTime {
        self.resumed.after(self.settling)
    }

    /// When this point is reached if observation continues without a pause.
    pub fn reached_at(&self, point: ObservedTime) -> Option<ControllerTime> {
        self.through
            .map(|through| through.max(self.counts_from).after(point.since(self.observed_time)))
    }
}

#[cfg(test)]
mod tests;
