//! Metrics of the requests to the API server, under client-go's names.
//!
//! Rule: labels are few and never what a server made up: the code is a number, the host is the
//! configured one. Counting waits for nothing but a lock. A watch counts when it begins, and its
//! length is no latency.
//!
//! upstream: component-base/metrics/prometheus/restclient/metrics.go

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::metrics::{Histogram, MetricFamily, MetricKind, MetricSource, Sample};

const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The code of a request without a response.
const NO_RESPONSE: &str = "<error>";

/// The requests of the clients that share it, since the start.
#[derive(Debug, Default)]
pub struct RequestMetrics {
    counts: Mutex<ApiRequestCounts>,
}

/// Host and verb.
type RequestUrlParts = (String, &'static str);

#[derive(Debug, Default)]
struct ApiRequestCounts {
    /// By target and code; zero for no response.
    requests: BTreeMap<(RequestUrlParts, u16), u64>,
    durations: BTreeMap<RequestUrlParts, Histogram>,
    waits: BTreeMap<RequestUrlParts, Histogram>,
}

impl RequestMetrics {
    fn lock(&self) -> MutexGuard<'_, ApiRequestCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt; `code` is None without a response, `took` is None for a watch.
    pub(crate) fn attempt(
        &self,
        host: &str,
        verb: &str,
        code: Option<u16>,
        took: Option<Duration>,
    ) {
        let target = (host.to_owned(), known(verb));
        let mut counts = self.lock();
        if let Some(took) = took {
            observe(&mut counts.durations, target.clone(), took);
        }
        *counts.requests.entry((target, code.unwrap_or(0))).or_default() += 1;
    }

    /// Counts how long a request waited for the client's own rate limit.
    pub(crate) fn waited(&self, host: &str, verb: &str, wait: Duration) {
        observe(&mut self.lock().waits, (host.to_owned(), known(verb)), wait);
    }
}

fn known(verb: &str) -> &'static str {
    const VERBS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    VERBS.into_iter().find(|known| *known == verb).unwrap_or("other")
}

fn observe(
    histograms: &mut BTreeMap<RequestUrlParts, Histogram>,
    target: RequestUrlParts,
    value: Duration,
) {
    let histogram = histograms.entry(target).or_insert_with(|| Histogram::new(SECONDS));
    histogram.observe(value.as_secs_f64());
}

fn histogram(
    name: &'static str,
    help: &'static str,
    of_targets: &BTreeMap<RequestUrlParts, Histogram>,
) -> MetricFamily {
    let samples = of_targets.iter().flat_map(|((host, verb), histogram)| {
        histogram.samples(&[("host", host.clone()), ("verb", (*verb).to_owned())])
    });
    MetricFamily { name, help, kind: MetricKind::Histogram, samples: samples.collect() }
}

impl MetricSource for RequestMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        let counts = self.lock();
        let requests = counts.requests.iter().map(|(((host, method), code), count)| Sample {
            suffix: "",
            labels: vec![
                ("code", if *code == 0 { NO_RESPONSE.to_owned() } else { code.to_string() }),
                ("host", host.clone()),
                ("method", (*method).to_owned()),
            ],
            value: *count as f64,
        });
        vec![
            MetricFamily {
                name: "rest_client_requests_total",
                help: "Requests to the API server, by status code, method and host.",
                kind: MetricKind::Counter,
                samples: requests.collect(),
            },
            histogram(
                "rest_client_request_duration_seconds",
                "Seconds until the API server's responses began, by verb and host.",
                &counts.durations,
            ),
            histogram(
                "rest_client_rate_limiter_duration_seconds",
                "Seconds that requests waited for the client's own rate limit, by verb and host.",
                &counts.waits,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_code_and_watches_have_no_latency() {
        let metrics = RequestMetrics::default();
        let host = "10.0.0.1:6443";
        let second = Some(Duration::from_secs(1));
        for (verb, code, took) in [
            ("GET", Some(200), second),
            ("GET", Some(200), None),
            ("PATCH", None, second),
            ("BREW", Some(418), second),
        ] {
            metrics.attempt(host, verb, code, took);
        }
        metrics.waited(host, "GET", Duration::ZERO);
        let text = ports::metrics::text(metrics.families());
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:6443\",method=\"GET\"} 2",
            "rest_client_requests_total{code=\"<error>\",host=\"10.0.0.1:6443\",method=\"PATCH\"} 1",
            "rest_client_requests_total{code=\"418\",host=\"10.0.0.1:6443\",method=\"other\"} 1",
            "rest_client_request_duration_seconds_count{host=\"10.0.0.1:6443\",verb=\"GET\"} 1",
            "rest_client_rate_limiter_duration_seconds_bucket{host=\"10.0.0.1:6443\",verb=\"GET\",\
             le=\"0.005\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
