//! Probe results under upstream's metric names, by container name and probe kind: a restart of the
//! container does not reset them.
//!
//! Rules: the counts are removed with the pod; those of liveness and startup probes already when
//! the pod is terminating, because these probes then stop for good. As upstream does, an attempt
//! that could not be run is not counted, and the duration of a failed one is not observed. Counting
//! does not allocate.
//!
//! upstream: pkg/kubelet/prober/prober_manager.go, pkg/kubelet/prober/worker.go

use crate::metrics::names::DEFAULT_BUCKETS;
use pod_lifecycle::{ProbeKind, ProbeResult};
use pod_model::pod::Pod;
use ports::metrics::{Histogram, MetricFamily, MetricKind, Sample};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Identifies a probe: pod, name of the container, kind.
type ProbeCountKey = (String, String, ProbeKind);

/// The counts of all probes.
#[derive(Debug, Default)]
pub(super) struct ProbeCounts(BTreeMap<ProbeCountKey, Arc<ProbeCount>>);

/// The counts of one probe.
#[derive(Debug)]
pub(super) struct ProbeCount {
    namespace: String,
    pod: String,
    counters: Mutex<ProbeCounters>,
}

#[derive(Debug)]
struct ProbeCounters {
    successful: u64,
    failed: u64,
    times: Histogram,
}

impl ProbeCount {
    pub(super) fn add(&self, result: &ProbeResult, took: Duration) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            ProbeResult::Success | ProbeResult::Warning(_) => {
                counters.successful += 1;
                counters.times.observe(took.as_secs_f64());
            }
            ProbeResult::Failure(_) => counters.failed += 1,
            ProbeResult::Unknown(_) => {}
        }
    }
}

impl ProbeCounts {
    /// The counts of this probe, created if there are none yet.
    pub(super) fn of(&mut self, pod: &Pod, container: &str, kind: ProbeKind) -> Arc<ProbeCount> {
        let meta = &pod.metadata;
        let new_count = || {
            let times = Histogram::new(DEFAULT_BUCKETS);
            Arc::new(ProbeCount {
                namespace: meta.namespace.to_string(),
                pod: meta.name.to_string(),
                counters: Mutex::new(ProbeCounters { successful: 0, failed: 0, times }),
            })
        };
        let key = (meta.uid.to_string(), container.to_owned(), kind);
        self.0.entry(key).or_insert_with(new_count).clone()
    }

    /// Removes the counts of a pod's probes, except those of the kinds for which `stays` is true.
    pub(super) fn keep(&mut self, uid: &str, stays: impl Fn(ProbeKind) -> bool) {
        self.0.retain(|(pod_uid, _, kind), _| pod_uid != uid || stays(*kind));
    }

    pub(super) fn families(&self) -> Vec<MetricFamily> {
        // Durations have no UID label: pods of the same name share a series.
        let (mut attempts, mut times) = (Vec::new(), BTreeMap::<_, Histogram>::new());
        for ((uid, container, kind), count) in &self.0 {
            let counters = count.counters.lock().unwrap_or_else(PoisonError::into_inner);
            let label = |name, value: &str| (name, value.to_owned());
            let kind = match kind {
                ProbeKind::Liveness => "Liveness",
                ProbeKind::Readiness => "Readiness",
                ProbeKind::Startup => "Startup",
            };
            let common_labels = [
                label("container", container),
                label("namespace", &count.namespace),
                label("pod", &count.pod),
            ];
            for (result, value) in
                [("failed", counters.failed), ("successful", counters.successful)]
            {
                if value > 0 {
                    let mut labels = common_labels.to_vec();
                    labels.extend([
                        label("pod_uid", uid),
                        label("probe_type", kind),
                        label("result", result),
                    ]);
                    attempts.push(Sample { suffix: "", labels, value: as_float(value) });
                }
            }
            if counters.successful > 0 {
                let mut labels = common_labels.to_vec();
                labels.push(label("probe_type", kind));
                times
                    .entry(labels)
                    .and_modify(|histogram| histogram.add(&counters.times))
                    .or_insert_with(|| counters.times.clone());
            }
        }
        let times = times.iter().flat_map(|(labels, times)| times.samples(labels)).collect();
        vec![
            MetricFamily {
                name: "prober_probe_duration_seconds",
                help: "Duration of successful probe attempts, in seconds.",
                kind: MetricKind::Histogram,
                samples: times,
            },
            MetricFamily {
                name: "prober_probe_total",
                help: "Probe attempts, by result.",
                kind: MetricKind::Counter,
                samples: attempts,
            },
        ]
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
