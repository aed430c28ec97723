//! Gauges of pods and containers, computed at each scrape.
//!
//! Rule: gauges are computed from the store, not kept beside it, so that they cannot drift from it.
//!
//! upstream: pkg/kubelet/kubelet_pods.go (HandlePodCleanups), pkg/kubelet/pleg/generic.go

use super::{PodSource, PodStatusEntry};
use crate::metrics::names;
use crate::pods::PodContext;
use pod_lifecycle::PodStage;
use ports::MetricFamily;
use ports::runtime_objects::ContainerState;
use std::collections::BTreeMap;

/// All metrics of the agent itself.
pub(super) fn families(context: &PodContext) -> Vec<MetricFamily> {
    let metrics = context.status_store.metrics();
    let (running, containers) = in_runtime(context);
    metrics.set(&names::RUNNING_PODS, &[], running);
    for (state, count) in containers {
        metrics.set(&names::RUNNING_CONTAINERS, &[state], count);
    }
    let (mut desired, mut ephemeral) = (BTreeMap::from([("", 0.0), ("true", 0.0)]), 0_usize);
    let mut working: BTreeMap<(&str, &str, &str), f64> = BTreeMap::new();
    for (config, is_static) in WORKING_POD_CONFIGS {
        for lifecycle in ["sync", "terminating", "terminated"] {
            working.insert((config, lifecycle, is_static), 0.0);
        }
    }
    for entry in context.status_store.pods().values() {
        let (config, is_static) = config(entry);
        ephemeral += entry.pod.spec.ephemeral_containers.len();
        if config == "desired" {
            *desired.entry(is_static).or_default() += 1.0;
        }
        *working.entry((config, lifecycle(entry), is_static)).or_default() += 1.0;
    }
    for entry in context.status_store.without_uid().values() {
        ephemeral += entry.pod.spec.ephemeral_containers.len();
        *desired.entry("true").or_default() += 1.0;
        *working.entry(("desired", "sync", "true")).or_default() += 1.0;
    }
    for ((config, lifecycle, is_static), count) in working {
        metrics.set(&names::WORKING_PODS, &[config, lifecycle, is_static], count);
    }
    let ephemeral = u32::try_from(ephemeral).unwrap_or(u32::MAX);
    metrics.set(&names::MANAGED_EPHEMERAL, &[], f64::from(ephemeral));
    let mut active = BTreeMap::from([("", 0.0), ("true", 0.0)]);
    for pod in context.admissions.admitted() {
        *active.entry(if pod.is_static() { "true" } else { "" }).or_default() += 1.0;
    }
    for (metric, counts) in [(&names::DESIRED_PODS, desired), (&names::ACTIVE_PODS, active)] {
        for (is_static, count) in counts {
            metrics.set(metric, &[is_static], count);
        }
    }
    let mirrors = context.api_pods.snapshot().mirrors.len();
    metrics.set(&names::MIRROR_PODS, &[], f64::from(u32::try_from(mirrors).unwrap_or(u32::MAX)));
    metrics.families(&names::of_every_node())
}

/// The values of `config` and `static`, paired as upstream pairs them.
const WORKING_POD_CONFIGS: [(&str, &str); 5] =
    [("desired", "true"), ("desired", ""), ("orphan", "true"), ("orphan", ""), RUNTIME_ONLY];
const RUNTIME_ONLY: (&str, &str) = ("runtime_only", "unknown");

fn config(entry: &PodStatusEntry) -> (&'static str, &'static str) {
    if entry.origin.source == PodSource::Runtime {
        return RUNTIME_ONLY;
    }
    let is_static = if entry.origin.source == PodSource::Api { "" } else { "true" };
    (if entry.is_unwanted { "orphan" } else { "desired" }, is_static)
}

fn lifecycle(entry: &PodStatusEntry) -> &'static str {
    match entry.stage {
        None | Some(PodStage::Running) => "sync",
        Some(PodStage::Ending) => "terminating",
        Some(PodStage::Ended | PodStage::Finished) => "terminated",
    }
}

/// Pods whose sandbox runs, and containers by state.
fn in_runtime(context: &PodContext) -> (f64, BTreeMap<&'static str, f64>) {
    let mut running = 0.0;
    let mut states =
        BTreeMap::from(["created", "exited", "running", "unknown"].map(|state| (state, 0.0)));
    for (_, pod) in context.observed.all() {
        if pod.sandboxes.iter().any(|sandbox| sandbox.ready) {
            running += 1.0;
        }
        for container in &pod.containers {
            let state = match container.record.state {
                ContainerState::Created => "created",
                ContainerState::Running => "running",
                ContainerState::Exited => "exited",
                ContainerState::Unknown => "unknown",
            };
            *states.entry(state).or_default() += 1.0;
        }
    }
    (running, states)
}
