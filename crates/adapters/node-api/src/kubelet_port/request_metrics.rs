//! Metrics of the requests to the kubelet's ports.
//!
//! Rule: names, labels and buckets are upstream's (pkg/kubelet/server/metrics); a label never holds
//! what a client made up. A stream lasts until it has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ports::metrics::{Histogram, MetricFamily, MetricKind, MetricSource, Sample};

/// Go's default buckets.
const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const METHODS: &[&str] = &["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"];
const PATHS: &[&str] = &[
    "healthz",
    "pods",
    "stats",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "configz",
    "runningpods",
    "checkpoint",
    "logs",
    "debug",
    "flagz",
    "statusz",
];
/// In upstream's spelling, which no path has in the case of port-forward.
const LONG_RUNNING: &[&str] = &["exec", "attach", "portforward", "debug"];
const OTHER: &str = "other";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RequestLabels {
    method: &'static str,
    path: &'static str,
    server: &'static str,
}

#[derive(Debug)]
struct RequestCounts {
    total: u32,
    in_flight: u32,
    durations: Histogram,
}

/// The requests since the start.
#[derive(Debug, Default)]
pub(super) struct PortRequestMetrics {
    requests: Mutex<BTreeMap<RequestLabels, RequestCounts>>,
}

/// A request in flight, until dropped.
#[derive(Debug)]
pub(super) struct RequestInFlight {
    metrics: Arc<PortRequestMetrics>,
    labels: RequestLabels,
    begun: Instant,
}

impl PortRequestMetrics {
    fn requests(&self) -> MutexGuard<'_, BTreeMap<RequestLabels, RequestCounts>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `server`: `readwrite` or `readonly`.
    pub(super) fn begin(
        self: &Arc<Self>,
        method: &str,
        path: &str,
        server: &'static str,
    ) -> RequestInFlight {
        let method = known(METHODS, method);
        let labels = RequestLabels { method, path: path_label(path), server };
        let mut requests = self.requests();
        let counts = requests.entry(labels).or_insert_with(|| RequestCounts {
            total: 0,
            in_flight: 0,
            durations: Histogram::new(BUCKETS),
        });
        counts.total = counts.total.saturating_add(1);
        counts.in_flight += 1;
        drop(requests);
        RequestInFlight { metrics: self.clone(), labels, begun: Instant::now() }
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        if let Some(counts) = self.metrics.requests().get_mut(&self.labels) {
            counts.in_flight = counts.in_flight.saturating_sub(1);
            counts.durations.observe(self.begun.elapsed().as_secs_f64());
        }
    }
}

fn known(names: &[&'static str], name: &str) -> &'static str {
    names.iter().find(|known| **known == name).copied().unwrap_or(OTHER)
}

fn path_label(path: &str) -> &'static str {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("metrics"), Some(part)) => known(PATHS, &format!("metrics/{part}")),
        (Some(root), _) => known(PATHS, root),
        (None, _) => OTHER,
    }
}

impl MetricSource for PortRequestMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        let (mut total, mut in_flight, mut durations) = (Vec::new(), Vec::new(), Vec::new());
        for (request, counts) in self.requests().iter() {
            let is_long = LONG_RUNNING.contains(&request.path);
            let labels = [
                ("long_running", is_long.to_string()),
                ("method", request.method.to_owned()),
                ("path", request.path.to_owned()),
                ("server_type", request.server.to_owned()),
            ];
            let sample =
                |value| Sample { suffix: "", labels: labels.to_vec(), value: f64::from(value) };
            total.push(sample(counts.total));
            in_flight.push(sample(counts.in_flight));
            durations.extend(counts.durations.samples(&labels));
        }
        vec![
            MetricFamily {
                name: "kubelet_http_requests_total",
                help: "[ALPHA] Number of the http requests received since the server started",
                kind: MetricKind::Counter,
                samples: total,
            },
            MetricFamily {
                name: "kubelet_http_inflight_requests",
                help: "[ALPHA] Number of the inflight http requests",
                kind: MetricKind::Gauge,
                samples: in_flight,
            },
            MetricFamily {
                name: "kubelet_http_requests_duration_seconds",
                help: "[ALPHA] Duration in seconds to serve http requests",
                kind: MetricKind::Histogram,
                samples: durations,
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_upstreams_and_never_a_clients() {
        for (path, expected) in [
            ("/healthz/ping", "healthz"),
            ("/metrics", "metrics"),
            ("/metrics/probes", "metrics/probes"),
            ("/metrics/slis", OTHER),
            ("/exec/ns/pod/container", "exec"),
            ("/portForward/ns/pod", "portForward"),
            ("/anything", OTHER),
            ("/", OTHER),
            ("", OTHER),
        ] {
            assert_eq!(path_label(path), expected, "{path}");
        }
        assert_eq!((known(METHODS, "GET"), known(METHODS, "PATCH")), ("GET", OTHER));
    }

    #[test]
    fn a_request_is_in_flight_until_it_is_dropped() {
        let metrics = Arc::new(PortRequestMetrics::default());
        let text = || ports::metrics::text(metrics.families());
        assert_eq!(text(), "");
        let stream = metrics.begin("POST", "/exec/a/b/c", "readwrite");
        let labels =
            "{long_running=\"true\",method=\"POST\",path=\"exec\",server_type=\"readwrite\"}";
        let line = |name: &str, value: u32| format!("{name}{labels} {value}\n");
        assert!(text().contains(&line("kubelet_http_inflight_requests", 1)), "{}", text());
        drop(stream);
        assert!(text().contains(&line("kubelet_http_inflight_requests", 0)), "{}", text());
        assert!(text().contains(&line("kubelet_http_requests_total", 1)), "{}", text());
        assert!(text().contains(&line("kubelet_http_requests_duration_seconds_count", 1)));
    }
}
