//! The agent's metrics, under upstream's names.
//!
//! Rules: counting is quick, waits for nothing but a lock, and allocates only for the first value
//! of a series. Every metric is one of `names`, so that each has an upstream name. A metric without
//! labels is served from the start, one with labels after its first value. Decides nothing; nothing
//! is decided on it.
//!
//! upstream: pkg/kubelet/metrics/metrics.go, pkg/kubelet/images/metrics.go

pub(crate) mod names;

#[cfg(test)]
mod tests;

use ports::metrics::{Histogram, MetricFamily, MetricKind, Sample};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The definition of a metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: MetricKind,
    /// In the order in which they are rendered.
    pub(crate) labels: &'static [&'static str],
    /// Bucket bounds of a histogram.
    pub(crate) bounds: &'static [f64],
}

#[derive(Debug, Clone)]
enum SeriesValue {
    Number(f64),
    Histogram(Histogram),
}

/// By metric; within a metric sorted by label values, of which there are few.
type Series = BTreeMap<&'static str, Vec<(Vec<String>, SeriesValue)>>;

/// Cheap to clone; all clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    series: Arc<Mutex<Series>>,
}

impl Metrics {
    fn lock(&self) -> MutexGuard<'_, Series> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Increments a counter.
    pub(crate) fn count(&self, metric: &Metric, labels: &[&str]) {
        self.change(metric, labels, |counted| match counted {
            SeriesValue::Number(number) => *number += 1.0,
            SeriesValue::Histogram(histogram) => histogram.observe(1.0),
        });
    }

    pub(crate) fn set(&self, metric: &Metric, labels: &[&str], value: f64) {
        self.change(metric, labels, |counted| *counted = SeriesValue::Number(value));
    }

    /// Adds a value to a histogram.
    pub(crate) fn observe(&self, metric: &Metric, labels: &[&str], value: f64) {
        self.change(metric, labels, |counted| match counted {
            SeriesValue::Number(number) => *number += value,
            SeriesValue::Histogram(histogram) => histogram.observe(value),
        });
    }

    /// Adds a duration to a histogram.
    pub(crate) fn took(&self, metric: &Metric, labels: &[&str], time: Duration) {
        self.observe(metric, labels, time.as_secs_f64());
    }

    fn change(&self, metric: &Metric, labels: &[&str], change: impl FnOnce(&mut SeriesValue)) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let mut series = self.lock();
        let of_metric = series.entry(metric.name).or_default();
        let place = of_metric.binary_search_by(|(values, _)| {
            values.iter().map(String::as_str).cmp(labels.iter().copied())
        });
        let place = place.unwrap_or_else(|place| {
            let values = labels.iter().map(|value| (*value).to_owned()).collect();
            of_metric.reserve_exact(1);
            of_metric.insert(place, (values, empty_value(metric)));
            place
        });
        if let Some((_, counted)) = of_metric.get_mut(place) {
            change(counted);
        }
    }

    /// The current state of all `metrics`.
    pub(crate) fn families(&self, metrics: &[&'static Metric]) -> Vec<MetricFamily> {
        let series = self.lock().clone();
        let family = |metric: &&'static Metric| {
            let counted = series.get(metric.name).into_iter().flatten();
            let mut samples: Vec<Sample> =
                counted.flat_map(|(values, counted)| lines(metric, values, counted)).collect();
            if samples.is_empty() && metric.labels.is_empty() {
                samples = lines(metric, &[], &empty_value(metric));
            }
            MetricFamily { name: metric.name, help: metric.help, kind: metric.kind, samples }
        };
        metrics.iter().map(family).collect()
    }
}

fn empty_value(metric: &Metric) -> SeriesValue {
    match metric.kind {
        MetricKind::Histogram => SeriesValue::Histogram(Histogram::new(metric.bounds)),
        MetricKind::Counter | MetricKind::Gauge => SeriesValue::Number(0.0),
    }
}

fn lines(metric: &Metric, values: &[String], counted: &SeriesValue) -> Vec<Sample> {
    let labels: Vec<(&'static str, String)> =
        metric.labels.iter().copied().zip(values.iter().cloned()).collect();
    match counted {
        SeriesValue::Number(value) => vec![Sample { suffix: "", labels, value: *value }],
        SeriesValue::Histogram(histogram) => histogram.samples(&labels),
    }
}
