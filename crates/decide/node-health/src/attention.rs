//! The clock that runs only while we look.
//!
//! Silence of a node is measured on this clock, never on the wall. It advances to the moment
//! through which our view of the cluster is proven whole (a watch event, a bookmark, a live read);
//! a jump larger than the bound means that we were away, stalled or cut off, and counts as nothing.
//! So one stalled process, or an API server that was down for everyone, adds no silence to any
//! node, and coming back costs one addition rather than a walk over all nodes.

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
    largest_gap: Duration,
}

impl Attention {
    /// A controller that has seen nothing yet. Jumps beyond `largest_gap` count as absence.
    pub fn new(largest_gap: Duration) -> Self {
        Self { attended: Attended::default(), through: None, largest_gap }
    }

    /// Our view is whole through this moment. Moments that lie behind change nothing.
    pub fn look(&mut self, proven_through: Moment) -> Attended {
        match self.through {
            Some(through) if proven_through <= through => {}
            Some(through) => {
                let step = proven_through.since(through);
                if step <= self.largest_gap {
                    self.attended = self.attended.after(step);
                }
                self.through = Some(proven_through);
            }
            None => self.through = Some(proven_through),
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
                self.attended.after(now.since(through))
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

    /// When this point is reached if we look without a pause.
    pub fn reaches(&self, point: Attended) -> Option<Moment> {
        self.through.map(|through| through.after(point.since(self.attended)))
    }
}

#[cfg(test)]
mod tests;
