//! How long each kind of call may take.
//!
//! Rule: pure arithmetic from the request and the configured limit; no answer means that only the
//! caller ends the call, by dropping it. Does not measure time.
//!
//! upstream: cri-client pkg/remote_runtime.go, pkg/remote_image.go

use std::time::Duration;

use cri_wire::v1::{CheckpointContainerRequest, ExecSyncRequest, StopContainerRequest};

#[cfg(test)]
mod tests;

/// The limits that configuration sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// An ordinary call; `runtimeRequestTimeout` of the configuration.
    pub request: Duration,
    /// A pull. None by default: only the runtime knows whether bytes still arrive.
    pub pull: Option<Duration>,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { request: Duration::from_secs(120), pull: None }
    }
}

pub(crate) fn ordinary<Request>(_: &Request, limits: &CallLimits) -> Option<Duration> {
    Some(limits.request)
}

/// A sandbox needs its image, its network and a process: twice the time.
pub(crate) fn sandbox<Request>(_: &Request, limits: &CallLimits) -> Option<Duration> {
    Some(limits.request.saturating_mul(2))
}

/// The grace that the container has comes on top.
pub(crate) fn stop(request: &StopContainerRequest, limits: &CallLimits) -> Option<Duration> {
    Some(limits.request.saturating_add(seconds(request.timeout)))
}

/// The runtime ends the command after its time; without one the command may run for ever.
pub(crate) fn exec(request: &ExecSyncRequest, limits: &CallLimits) -> Option<Duration> {
    (request.timeout > 0).then(|| limits.request.saturating_add(seconds(request.timeout)))
}

/// Its own time, but never less than an ordinary call has.
pub(crate) fn checkpoint(
    request: &CheckpointContainerRequest,
    limits: &CallLimits,
) -> Option<Duration> {
    Some(limits.request.max(seconds(request.timeout)))
}

pub(crate) fn pull<Request>(_: &Request, limits: &CallLimits) -> Option<Duration> {
    limits.pull
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
