//! Durations of creating, updating and removing cgroups, under upstream's metric name.
//!
//! Rule: only the work itself counts, not the wait for the runtime to report its driver. Setting
//! limits of an existing cgroup is an update, as upstream has it.
//!
//! upstream: pkg/kubelet/cm/cgroup_manager_linux.go

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ports::metrics::{Histogram, MetricFamily, MetricKind, MetricSource};

use crate::groups::HostCgroups;

#[cfg(test)]
mod tests;

const BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// An operation on a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Create,
    Update,
    Destroy,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Destroy => "destroy",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct OperationTimes(Mutex<BTreeMap<Operation, Histogram>>);

impl OperationTimes {
    /// Runs `work` and records its duration, also if it fails.
    pub(crate) fn of<T>(&self, operation: Operation, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.add(operation, began.elapsed());
        done
    }

    fn add(&self, operation: Operation, took: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_operation = times.entry(operation).or_insert_with(|| Histogram::new(BOUNDS));
        of_operation.observe(took.as_secs_f64());
    }

    fn family(&self) -> MetricFamily {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = times.iter().flat_map(|(operation, times)| {
            times.samples(&[("operation_type", operation.name().to_owned())])
        });
        MetricFamily {
            name: "kubelet_cgroup_manager_duration_seconds",
            help: "Seconds that work on control groups took: create, update or destroy.",
            kind: MetricKind::Histogram,
            samples: samples.collect(),
        }
    }
}

impl MetricSource for HostCgroups {
    fn families(&self) -> Vec<MetricFamily> {
        vec![self.times.family()]
    }
}
