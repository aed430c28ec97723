//! Counts, durations and errors of the calls, by operation.
//!
//! Rules: names and buckets are upstream's. A call counts once, when its response or its error
//! arrives; one that its caller dropped is not counted, for its outcome is unknown. A call without
//! a name upstream is not counted.
//!
//! upstream: pkg/kubelet/kuberuntime/instrumented_services.go

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ports::metrics::{Histogram, MetricFamily, MetricKind, MetricSource, Sample};

use crate::client::CriClient;

#[cfg(test)]
mod tests;

/// Each is two and a half times the one before.
const BOUNDS: &[f64] = &[
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];

#[derive(Debug)]
struct CallStats {
    times: Histogram,
    made: u64,
    failed: u64,
}

/// By upstream's operation name.
#[derive(Debug, Default)]
pub(crate) struct CallCounts(Mutex<BTreeMap<&'static str, CallStats>>);

impl CallCounts {
    pub(crate) fn add(&self, call: &str, took: Duration, failed: bool) {
        let Some(operation) = operation(call) else { return };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || CallStats { times: Histogram::new(BOUNDS), made: 0, failed: 0 };
        let calls = counts.entry(operation).or_insert_with(none);
        calls.made += 1;
        calls.failed += u64::from(failed);
        calls.times.observe(took.as_secs_f64());
    }

    fn families(&self) -> Vec<MetricFamily> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut made, mut failed, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for (operation, calls) in counts.iter() {
            let labels = vec![("operation_type", (*operation).to_owned())];
            times.extend(calls.times.samples(&labels));
            if calls.failed > 0 {
                failed.push(sample(labels.clone(), calls.failed));
            }
            made.push(sample(labels, calls.made));
        }
        let family = |name, help, kind, samples| MetricFamily { name, help, kind, samples };
        vec![
            family(
                "kubelet_runtime_operations_total",
                "Calls to the runtime, by kind.",
                MetricKind::Counter,
                made,
            ),
            family(
                "kubelet_runtime_operations_errors_total",
                "Calls to the runtime that failed, by kind.",
                MetricKind::Counter,
                failed,
            ),
            family(
                "kubelet_runtime_operations_duration_seconds",
                "Seconds that calls to the runtime took, by kind.",
                MetricKind::Histogram,
                times,
            ),
        ]
    }
}

impl MetricSource for CriClient {
    fn families(&self) -> Vec<MetricFamily> {
        self.counts.families()
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn sample(labels: Vec<(&'static str, String)>, count: u64) -> Sample {
    Sample { suffix: "", labels, value: count as f64 }
}

/// Upstream's operation name of a call.
fn operation(call: &str) -> Option<&'static str> {
    Some(match call {
        "Version" => "version",
        "Status" => "status",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "UpdateContainerResources" => "update_container",
        "ReopenContainerLog" => "reopen_container_log",
        "ExecSync" => "exec_sync",
        "Exec" => "exec",
        "Attach" => "attach",
        "PortForward" => "port_forward",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "ContainerStats" => "container_stats",
        "ListContainerStats" => "list_container_stats",
        "PodSandboxStats" => "podsandbox_stats",
        "ListPodSandboxStats" => "list_podsandbox_stats",
        "UpdatePodSandboxResources" => "update_podsandbox_resources",
        "UpdateRuntimeConfig" => "update_runtime_config",
        "CheckpointContainer" => "checkpoint_container",
        "ListMetricDescriptors" => "list_metric_descriptors",
        "ListPodSandboxMetrics" => "list_podsandbox_metrics",
        "RuntimeConfig" => "runtime_config",
        "ListImages" => "list_images",
        "ImageStatus" => "image_status",
        "PullImage" => "pull_image",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        _ => return None,
    })
}
