//! How long the node's certificates are still valid, and how their renewal goes.
//!
//! Rule: computed when it is read. Infinite while there is no certificate, negative after its end,
//! as upstream's.

use crate::clock::AgentClock;
use crate::metrics::{Metrics, names};
use node_certificates::CertificatePurpose;
use ports::metrics::{MetricKind, Sample};
use ports::{CertificateFacts, MetricFamily, MetricSource};
use tokio::sync::watch;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The metric of one certificate.
pub(crate) struct CertificateTtl {
    name: &'static str,
    help: &'static str,
    current: watch::Receiver<Option<CertificateFacts>>,
    clock: AgentClock,
}

impl CertificateTtl {
    pub(crate) fn new(
        purpose: CertificatePurpose,
        current: watch::Receiver<Option<CertificateFacts>>,
        clock: &AgentClock,
    ) -> Self {
        let (name, help) = match purpose {
            CertificatePurpose::Client => (
                "kubelet_certificate_manager_client_ttl_seconds",
                "Seconds until the certificate for the API server ends; infinite without one.",
            ),
            CertificatePurpose::Serving => (
                "kubelet_certificate_manager_server_ttl_seconds",
                "Seconds until the serving certificate ends; infinite without one.",
            ),
        };
        Self { name, help, current, clock: clock.clone() }
    }
}

impl MetricSource for CertificateTtl {
    fn families(&self) -> Vec<MetricFamily> {
        let current = self.current.borrow();
        let value = current.as_ref().map_or(f64::INFINITY, |current| {
            let left = current.not_after.nanos().saturating_sub(self.clock.now().nanos());
            // Whole seconds: far fewer than a float can count.
            (left / NANOS_PER_SECOND) as f64
        });
        vec![MetricFamily {
            name: self.name,
            help: self.help,
            kind: MetricKind::Gauge,
            samples: vec![Sample { suffix: "", labels: Vec::new(), value }],
        }]
    }
}

/// What the renewal of one certificate counts; a node that renews none has no such metrics.
pub(crate) struct RenewalCounts {
    pub(crate) purpose: CertificatePurpose,
    pub(crate) metrics: Metrics,
}

impl MetricSource for RenewalCounts {
    fn families(&self) -> Vec<MetricFamily> {
        self.metrics.families(match self.purpose {
            CertificatePurpose::Client => names::OF_CLIENT_CERTIFICATE,
            CertificatePurpose::Serving => names::OF_SERVING_CERTIFICATE,
        })
    }
}
