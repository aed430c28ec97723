//! Metrics that say what this program is: its version and its feature gates.
//!
//! Rule: names and labels are upstream's; what this program does not have (a Go version, a git
//! commit) is empty. Nothing changes while the agent runs.
//!
//! upstream: component-base/metrics/version.go, component-base/metrics/prometheus/feature

use node_config::NodeConfig;
use node_config::feature_gates::{FeatureGates, Gate, GateStage};
use node_config::flags::KUBERNETES_VERSION;
use ports::metrics::{MetricKind, Sample};
use ports::{MetricFamily, MetricSource};

use super::machine;

pub(super) struct FixedMetrics {
    version: String,
    gates: FeatureGates,
}

impl FixedMetrics {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let reported = config.flags().reported_version.as_deref();
        Self { version: reported.unwrap_or(KUBERNETES_VERSION).to_owned(), gates: *config.gates() }
    }

    fn build_info(&self) -> MetricFamily {
        let mut numbers = self.version.trim_start_matches('v').split('.').map(str::to_owned);
        let (major, minor) = (numbers.next(), numbers.next());
        let labels = vec![
            ("build_date", String::new()),
            ("compiler", "rustc".to_owned()),
            ("git_commit", String::new()),
            ("git_tree_state", String::new()),
            ("git_version", self.version.clone()),
            ("go_version", String::new()),
            ("major", major.unwrap_or_default()),
            ("minor", minor.unwrap_or_default()),
            ("platform", format!("linux/{}", machine::architecture())),
        ];
        MetricFamily {
            name: "kubernetes_build_info",
            help: "The release of Kubernetes whose behaviour this program has. The value is always 1.",
            kind: MetricKind::Gauge,
            samples: vec![Sample { suffix: "", labels, value: 1.0 }],
        }
    }

    fn features(&self) -> MetricFamily {
        let sample = |gate: Gate| {
            let stage = match gate.stage() {
                GateStage::Stable => String::new(),
                other => other.to_string(),
            };
            let value = if self.gates.enabled(gate) { 1.0 } else { 0.0 };
            let labels = vec![("name", gate.name().to_owned()), ("stage", stage)];
            Sample { suffix: "", labels, value }
        };
        MetricFamily {
            name: "kubernetes_feature_enabled",
            help: "Feature gates, by stage; 1 where the feature is on.",
            kind: MetricKind::Gauge,
            samples: Gate::all().map(sample).collect(),
        }
    }
}

impl MetricSource for FixedMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        vec![self.build_info(), self.features()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_gates_have_upstreams_labels() {
        let source = FixedMetrics { version: "v1.36.3".to_owned(), gates: FeatureGates::default() };
        let text = ports::metrics::text(source.families());
        let platform = format!("linux/{}", machine::architecture());
        let build = format!(
            "kubernetes_build_info{{build_date=\"\",compiler=\"rustc\",git_commit=\"\",\
             git_tree_state=\"\",git_version=\"v1.36.3\",go_version=\"\",major=\"1\",minor=\"36\",\
             platform=\"{platform}\"}} 1\n"
        );
        assert!(text.contains(&build), "{text}");
        for line in [
            "kubernetes_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0\n",
            "kubernetes_feature_enabled{name=\"PLEGOnDemandRelist\",stage=\"BETA\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
