//! The time limit of each kind of call.
//!
//! Rule: every call has a limit; pure arithmetic from the request and the configuration. Where
//! upstream waits for ever, the limit is one that no working call reaches: it only keeps a runtime
//! that lost the call from blocking the caller for ever. Does not measure time.
//!
//! upstream: cri-client pkg/remote_runtime.go, pkg/remote_image.go

use std::time::Duration;

use cri_wire::v1::{CheckpointContainerRequest, ExecSyncRequest, StopContainerRequest};

#[cfg(test)]
mod tests;

/// An image pull. Upstream sets none and leaves it to the runtime, which times out when no more
/// bytes arrive; the largest images over a slow line take tens of minutes.
pub const PULL_LIMIT: Duration = Duration::from_mins(60);

/// A command without a timeout. Upstream waits for ever. Probes have timeouts, and a preStop hook
/// has no more than its pod's grace period; so this bounds postStart hooks and commands that people
/// run by hand.
pub const EXEC_LIMIT: Duration = Duration::from_hours(4);

/// The limits that the configuration sets.
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

/// A sandbox needs its image, its network and a process: twice the limit.
pub(crate) fn sandbox<Request>(_: &Request, limits: &CallLimits) -> Duration {
    limits.request.saturating_mul(2)
}

/// The container's grace period is added.
pub(crate) fn stop(request: &StopContainerRequest, limits: &CallLimits) -> Duration {
    limits.request.saturating_add(seconds(request.timeout))
}

/// The runtime enforces the command's own timeout; without one it is [`EXEC_LIMIT`].
pub(crate) fn exec(request: &ExecSyncRequest, limits: &CallLimits) -> Duration {
    if request.timeout > 0 {
        limits.request.saturating_add(seconds(request.timeout))
    } else {
        EXEC_LIMIT
    }
}

/// The request's own timeout, but never less than an ordinary call's.
pub(crate) fn checkpoint(request: &CheckpointContainerRequest, limits: &CallLimits) -> Duration {
    limits.request.max(seconds(request.timeout))
}

pub(crate) fn pull<Request>(_: &Request, limits: &CallLimits) -> Duration {
    limits.pull
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
