//! How long each kind of call may take.
//!
//! Rule: every call has a limit; pure arithmetic from the request and the configuration. Where
//! upstream waits for ever, the limit is one that no honest call reaches: it only keeps a runtime
//! that lost the call from holding the caller for ever. Does not measure time.
//!
//! upstream: cri-client pkg/remote_runtime.go, pkg/remote_image.go

use std::time::Duration;

use cri_wire::v1::{CheckpointContainerRequest, ExecSyncRequest, StopContainerRequest};

#[cfg(test)]
mod tests;

/// A pull, from its beginning to its end. Upstream sets none and leaves it to the runtime, which gives
/// up when no more bytes arrive; the largest images over a slow line take tens of minutes.
pub const PULL_LIMIT: Duration = Duration::from_mins(60);

/// A command without a time of its own. Upstream waits for ever. Probes have times, and a preStop hook
/// has no more than its pod's grace; so this holds postStart hooks and what people run by hand, and
/// nobody waits longer than half a day's work.
pub const EXEC_LIMIT: Duration = Duration::from_hours(4);

/// The limits that configuration sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// An ordinary call; `runtimeRequestTimeout` of the configuration.
    pub request: Duration,
    /// A pull; [`PULL_LIMIT`] by default.
    pub pull: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { request: Duration::from_secs(120), pull: PULL_LIMIT }
    }
}

pub(crate) fn ordinary<Request>(_: &Request, limits: &CallLimits) -> Duration {
    limits.request
}

/// A sandbox needs its image, its network and a process: twice the time.
pub(crate) fn sandbox<Request>(_: &Request, limits: &CallLimits) -> Duration {
    limits.request.saturating_mul(2)
}

/// The grace that the container has comes on top.
pub(crate) fn stop(request: &StopContainerRequest, limits: &CallLimits) -> Duration {
    limits.request.saturating_add(seconds(request.timeout))
}

/// The runtime ends the command after its time; without one there is [`EXEC_LIMIT`].
pub(crate) fn exec(request: &ExecSyncRequest, limits: &CallLimits) -> Duration {
    if request.timeout > 0 {
        limits.request.saturating_add(seconds(request.timeout))
    } else {
        EXEC_LIMIT
    }
}

/// Its own time, but never less than an ordinary call has.
pub(crate) fn checkpoint(request: &CheckpointContainerRequest, limits: &CallLimits) -> Duration {
    limits.request.max(seconds(request.timeout))
}

pub(crate) fn pull<Request>(_: &Request, limits: &CallLimits) -> Duration {
    limits.pull
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
