//! The clock that runs only while we look.
//!
//! Silence of a node is measured on this clock, never on the wall. It advances to the moment
//! through which our view of the cluster is proven whole (a watch event, a bookmark, a live read);
//! a jump larger than the bound means that we were away, stalled or cut off, and counts as nothing.
//! So one stalled process, or an API server that was down for everyone, adds no silence to any
//! node, and coming back costs one addition rather than a walk over all nodes. After an absence
//! everybody else may be coming back too: for a settling time the clock stands, so that who had
//! used up its patience before can speak first, and we act against nobody. After a start the clock
//! runs at once, since everybody's patience is whole, but acting waits all the same.

use std::time::Duration;

use crate::time::Moment;

/// A point on the clock that runs only while we look: nanoseconds of attention so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attended(u64);

impl Attended {
    /// This much attention later.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How much attention passed since `earlier`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// How much we have looked, and through which moment.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    attended: Attended,
    through: Option<Moment>,
    resumed: Moment,
    /// From here on looking counts.
    counts_from: Moment,
    largest_gap: Duration,
    settling: Duration,
}

impl Attention {
    /// A controller that has seen nothing yet. Jumps beyond `largest_gap` count as absence, and
    /// `settling` is how long a node may take to report once it can.
    pub fn new(largest_gap: Duration, settling: Duration) -> Self {
        let (resumed, counts_from) = (Moment::default(), Moment::default());
        let attended = Attended::default();
        Self { attended, through: None, resumed, counts_from, largest_gap, settling }
    }

    /// Our view is whole through this moment. Moments that lie behind change nothing.
    pub fn look(&mut self, proven_through: Moment) -> Attended {
        match self.through {
            Some(through) if proven_through <= through => {}
            Some(through) if proven_through.since(through) > self.largest_gap => {
                self.resumed = proven_through;
                self.counts_from = self.settled_at();
                self.through = Some(proven_through);
            }
            Some(through) => {
                self.attended = self.at_most(proven_through);
                // Settling needs a steady view: a pause that is nothing otherwise starts it anew.
                let pause = proven_through.since(through) > self.largest_gap / 2;
                if pause && through < self.settled_at() {
                    let stands = self.counts_from > through;
                    self.resumed = proven_through;
                    if stands {
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
        self.attended
    }

    /// Attention so far.
    pub fn attended(&self) -> Attended {
        self.attended
    }

    /// The furthest that this clock can be at `now`, whatever is proven later: what is heard now is
    /// never dated too early.
    pub fn at_most(&self, now: Moment) -> Attended {
        match self.through {
            Some(through) if now.since(through) <= self.largest_gap => {
                self.attended.after(now.since(through.max(self.counts_from)))
            }
            _ => self.attended,
        }
    }

    /// The moment through which our view is proven, if it ever was.
    pub fn through(&self) -> Option<Moment> {
        self.through
    }

    /// Whether the view is fresh enough to act against somebody.
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.through.is_some_and(|through| now.since(through) <= self.largest_gap)
    }

    /// Whether we may act against anybody: the view is fresh, and proven to the end of the settling
    /// time.
    pub fn may_act(&self, now: Moment) -> bool {
        self.is_fresh(now) && self.through.is_some_and(|through| through >= self.settled_at())
    }

    /// When the settling time is over.
    pub fn settled_at(&self) -> Moment {
        self.resumed.after(self.settling)
    }

    /// When this point is reached if we look without a pause.
    pub fn reaches(&self, point: Attended) -> Option<Moment> {
        self.through.map(|through| through.max(self.counts_from).after(point.since(self.attended)))
    }
}

#[cfg(test)]
mod tests;
