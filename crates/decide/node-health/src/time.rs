//! Two kinds of time: our own clock's, and timestamps written by others.
//!
//! A [`ControllerTime`] supports comparison and addition. A [`RemoteTime`] may only be compared with another
//! stamp for equality, since its clock may be years off; where one is used as a `ControllerTime` (a taint's
//! `timeAdded`, a pod's binding) it is bounded once by what we observed. All arithmetic saturates.

use std::time::Duration;

/// Nanoseconds on the controller's own clock, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerTime(i64);

/// A timestamp of another clock, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteTime(i64);

impl ControllerTime {
    /// The time this many nanoseconds after the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The time this many seconds after the epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// This much later.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(signed_nanos(span)))
    }

    /// How long ago `earlier` was; zero if it is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// As the timestamp that others will read.
    pub const fn stamp(self) -> RemoteTime {
        RemoteTime(self.0)
    }
}

impl RemoteTime {
    /// The timestamp this many nanoseconds after the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch, as written.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// As if our clock had written it. The caller bounds the result.
    pub(crate) const fn assume_local_clock(self) -> ControllerTime {
        ControllerTime(self.0)
    }
}

fn signed_nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
