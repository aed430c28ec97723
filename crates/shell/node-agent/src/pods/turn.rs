//! How long it takes to bring a pod in line, each time that something happens to it.
//!
//! Rule: a turn begins when the worker has something to look at and ends when nothing is in flight
//! any more, so that it holds the actions as upstream's does. It is counted under what it began with;
//! a changed wish that comes while it lasts counts more than what it began with.
//!
//! upstream: pkg/kubelet/pod_workers.go (podWorkerLoop), pkg/kubelet/types/pod_update.go

use crate::metrics::{Metrics, names};
use tokio::time::Instant;

/// What a pod is worked on for, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// Something happened.
    Sync,
    /// It is new here.
    Create,
    /// Another version of it is wanted.
    Update,
    /// It is not wanted any more.
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

pub(super) struct Turn {
    metrics: Metrics,
    now: Option<(Instant, Cause)>,
}

impl Turn {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, now: None }
    }

    /// There is something to do; it may be one thing more.
    pub(super) fn begins(&mut self, cause: Cause) {
        let (_, known) = self.now.get_or_insert_with(|| (Instant::now(), cause));
        *known = cause.max(*known);
    }

    /// Nothing is in flight.
    pub(super) fn ends(&mut self) {
        if let Some((began, cause)) = self.now.take() {
            self.metrics.took(&names::POD_WORKER_DURATION, &[cause.name()], began.elapsed());
        }
    }

    /// Nothing is left of the pod.
    pub(super) fn is_last(&mut self) {
        if let Some((began, _)) = self.now.take() {
            self.metrics.took(&names::POD_WORKER_DURATION, &["terminated"], began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests;
