//! Arithmetic on points in time that never overflows. Reads no clock.

use std::time::Duration;

use pod_model::pod::Timestamp;
use ports::ApiTime;

const SECOND: i64 = 1_000_000_000;

pub(crate) fn plus(at: ApiTime, by: Duration) -> ApiTime {
    let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
    ApiTime::from_nanos(at.nanos().saturating_add(nanos))
}

/// The time between the two; zero where they are in the wrong order.
pub(crate) fn between(earlier: ApiTime, later: ApiTime) -> Duration {
    let nanos = later.nanos().saturating_sub(earlier.nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub(crate) fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// A runtime's nanoseconds as the API writes them; zero is "has not happened".
pub(crate) fn stamp(nanos: i64) -> Option<Timestamp> {
    (nanos != 0).then(|| Timestamp(nanos.div_euclid(SECOND)))
}

pub(crate) fn timestamp(at: ApiTime) -> Timestamp {
    Timestamp(at.nanos().div_euclid(SECOND))
}

/// The earlier of the two that there are.
pub(crate) fn sooner(one: Option<ApiTime>, other: Option<ApiTime>) -> Option<ApiTime> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
