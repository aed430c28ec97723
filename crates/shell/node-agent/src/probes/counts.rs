//! Probe results under upstream's metric names: by container and kind, over all its instances.
//!
//! Rules: a probe's counts are removed with its pod; liveness and startup probes stop for good when
//! their pod ends, and their counts are removed then. An attempt that could not be run is not
//! counted, nor the duration of a failure, as upstream does. Counting does not allocate.
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
    /// The counts of this probe; new ones if it has none.
    pub(super) fn of(&mut self, pod: &Pod, container: &str, kind: ProbeKind) -> Arc<ProbeCount> {
        let meta = &pod.metadata;
        let new = || {
            let times = Histogram::new(DEFAULT_BUCKETS);
            Arc::new(ProbeCount {
                namespace: meta.namespace.to_string(),
                pod: meta.name.to_string(),
                counters: Mutex::new(ProbeCounters { successful: 0, failed: 0, times }),
            })
        };
        let key = (meta.uid.to_string(), container.to_owned(), kind);
        self.0.entry(key).or_insert_with(new).clone()
    }

    /// Keeps only the counts of these kinds for a pod.
    pub(super) fn keep(&mut self, uid: &str, stays: impl Fn(ProbeKind) -> bool) {
        self.0.retain(|(of, _, kind), _| of != uid || stays(*kind));
    }

    pub(super) fn families(&self) -> Vec<MetricFamily> {
        // Durations have no UID label: pods of the same name share a series.
        let (mut tries, mut times) = (Vec::new(), BTreeMap::<_, Histogram>::new());
        for ((uid, container, kind), count) in &self.0 {
            let counters = count.counters.lock().unwrap_or_else(PoisonError::into_inner);
            let of = |name, value: &str| (name, value.to_owned());
            let kind = match kind {
                ProbeKind::Liveness => "Liveness",
                ProbeKind::Readiness => "Readiness",
                ProbeKind::Startup => "Startup",
            };
            let place = [
                of("container", container),
                of("namespace", &count.namespace),
                of("pod", &count.pod),
            ];
            for (result, value) in
                [("failed", counters.failed), ("successful", counters.successful)]
            {
                if value > 0 {
                    let mut labels = place.to_vec();
                    labels.extend([
                        of("pod_uid", uid),
                        of("probe_type", kind),
                        of("result", result),
                    ]);
                    tries.push(Sample { suffix: "", labels, value: as_float(value) });
                }
            }
            if counters.successful > 0 {
                let mut labels = place.to_vec();
                labels.push(of("probe_type", kind));
                let known = times.entry(labels);
                known
                    .and_modify(|it| it.add(&counters.times))
                    .or_insert_with(|| counters.times.clone());
            }
        }
        let times = times.iter().flat_map(|(labels, times)| times.samples(labels)).collect();
        vec![
            MetricFamily {
                name: "prober_probe_duration_seconds",
                help: "Seconds that successful tries of probes took.",
                kind: MetricKind::Histogram,
                samples: times,
            },
            MetricFamily {
                name: "prober_probe_total",
                help: "Tries of probes, by how they went.",
                kind: MetricKind::Counter,
                samples: tries,
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
