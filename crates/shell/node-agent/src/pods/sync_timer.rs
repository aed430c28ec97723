//! Measures each sync of a pod.
//!
//! Rule: a sync begins when the worker wakes up and ends when no action is in flight any more, so
//! that it includes the actions as upstream's does. It is counted under the weightiest of the
//! causes that came while it lasted.
//!
//! upstream: pkg/kubelet/pod_workers.go (podWorkerLoop), pkg/kubelet/types/pod_update.go

use crate::metrics::{Metrics, names};
use tokio::time::Instant;

/// The cause of a sync, in upstream's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// An input arrived.
    Sync,
    /// The pod is new here.
    Create,
    /// Another version of it is desired.
    Update,
    /// It is not desired any more.
    Kill,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Create => "create",
            Self::Update => "update",
            Self::Kill => "kill",
        }
    }
}

pub(super) struct SyncTimer {
    metrics: Metrics,
    now: Option<(Instant, Cause)>,
}

impl SyncTimer {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, now: None }
    }

    /// Begins a sync, or adds a cause to the current one.
    pub(super) fn begins(&mut self, cause: Cause) {
        let (_, known) = self.now.get_or_insert_with(|| (Instant::now(), cause));
        *known = cause.max(*known);
    }

    /// Ends the sync: no action is in flight.
    pub(super) fn ends(&mut self) {
        if let Some((began, cause)) = self.now.take() {
            self.metrics.took(&names::POD_WORKER_DURATION, &[cause.name()], began.elapsed());
        }
    }

    /// Ends the last sync: nothing is left of the pod.
    pub(super) fn is_last(&mut self) {
        if let Some((began, _)) = self.now.take() {
            self.metrics.took(&names::POD_WORKER_DURATION, &["terminated"], began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests;
