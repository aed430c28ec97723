//! The results of health checks as metrics (`/metrics/slis`).
//!
//! Rule: counted whenever `/healthz` is answered, on any port of the agent, as upstream does; a
//! single check that is asked for by its name is not. upstream: component-base
//! metrics/prometheus/slis

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ports::metrics::{MetricFamily, MetricKind, Sample, text};

/// The results since the start, or since the last reset.
#[derive(Debug, Default)]
pub struct HealthCheckCounts {
    checks: Mutex<BTreeMap<String, ComponentChecks>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ComponentChecks {
    is_healthy: bool,
    successes: u32,
    errors: u32,
}

impl HealthCheckCounts {
    fn checks(&self) -> MutexGuard<'_, BTreeMap<String, ComponentChecks>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn observe(&self, check: &str, is_healthy: bool) {
        let mut checks = self.checks();
        let counts = checks.entry(check.to_owned()).or_default();
        counts.is_healthy = is_healthy;
        let count = if is_healthy { &mut counts.successes } else { &mut counts.errors };
        *count = count.saturating_add(1);
    }

    pub(crate) fn reset(&self) {
        self.checks().clear();
    }

    /// In the text format.
    pub(crate) fn text(&self) -> String {
        let (mut states, mut totals) = (Vec::new(), Vec::new());
        for (name, counts) in self.checks().iter() {
            let labels = || vec![("name", name.clone()), ("type", "healthz".to_owned())];
            let sample = |labels, value| Sample { suffix: "", labels, value };
            states.push(sample(labels(), f64::from(u8::from(counts.is_healthy))));
            for (status, count) in [("error", counts.errors), ("success", counts.successes)] {
                if count > 0 {
                    let mut labels = labels();
                    labels.insert(1, ("status", status.to_owned()));
                    totals.push(sample(labels, f64::from(count)));
                }
            }
        }
        text(vec![
            MetricFamily {
                name: "kubernetes_healthcheck",
                help: "[STABLE] This metric records the result of a single healthcheck.",
                kind: MetricKind::Gauge,
                samples: states,
            },
            MetricFamily {
                name: "kubernetes_healthchecks_total",
                help: "[STABLE] This metric records the results of all healthcheck.",
                kind: MetricKind::Counter,
                samples: totals,
            },
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_result_and_all_of_them_are_shown() {
        let counts = HealthCheckCounts::default();
        assert_eq!(counts.text(), "");
        counts.observe("ping", true);
        counts.observe("ping", true);
        counts.observe("syncloop", true);
        counts.observe("syncloop", false);
        let text = counts.text();
        for line in [
            "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n",
            "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 0\n",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 2\n",
            "kubernetes_healthchecks_total{name=\"syncloop\",status=\"error\",type=\"healthz\"} 1\n",
            "kubernetes_healthchecks_total{name=\"syncloop\",status=\"success\",type=\"healthz\"} 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        counts.reset();
        assert_eq!(counts.text(), "");
    }
}
