//! The node's certificates: requested from the cluster, renewed before they end.
//!
//! Rule: when and for what is decided by `node-certificates`; the store keeps keys to itself. The
//! two certificates wait for each other in no way, and nothing else waits for them: a node without
//! an identity runs its static pods.
//!
//! upstream: pkg/kubelet/certificate, client-go util/certificate

mod client;
mod metrics;
mod renewal;
mod serving;

#[cfg(test)]
mod tests;

use crate::clock::AgentClock;
use crate::metrics::Metrics;
use crate::task_tree::TaskTree;
use node_certificates::CertificatePurpose;
use node_status::NodeObject;
use ports::{CertificateFacts, CertificateStore, ClusterApi, MetricSource, ShutdownReason};
use std::sync::Arc;
use tokio::sync::watch;

pub(crate) use metrics::CertificateTtl;
use metrics::RenewalCounts;

/// Which certificates the cluster issues to this node.
#[derive(Default)]
pub struct CertificateDependencies {
    /// None if the credentials are files that others manage.
    pub client: Option<ManagedClientCertificate>,
    /// None without `serverTLSBootstrap`.
    pub serving: Option<Arc<dyn CertificateStore>>,
}

/// The certificate by which the node is known to the API server.
pub struct ManagedClientCertificate {
    pub store: Arc<dyn CertificateStore>,
    /// With the credentials of `--bootstrap-kubeconfig`; None if there already are others.
    pub bootstrap: Option<Arc<dyn ClusterApi>>,
    /// `rotateCertificates`; otherwise it is requested only if there is none.
    pub rotates: bool,
    /// The current one is from the configuration and is replaced at once.
    pub replace_now: bool,
    /// Set when the agent has lost its identity and should end.
    pub lost: watch::Sender<Option<ShutdownReason>>,
}

/// What the tasks take from the rest of the agent.
pub(crate) struct CertificateInputs {
    /// With the node's own identity.
    pub(crate) api: Arc<dyn ClusterApi>,
    pub(crate) node_name: String,
    pub(crate) clock: AgentClock,
    pub(crate) metrics: Metrics,
    pub(crate) node_object: watch::Receiver<Option<Arc<NodeObject>>>,
}

/// The certificate in use, as far as it is known.
type CurrentCertificate = watch::Sender<Option<CertificateFacts>>;

/// Starts the tasks; returns the metrics of the certificates.
pub(crate) fn start(
    tree: &mut TaskTree,
    dependencies: CertificateDependencies,
    inputs: CertificateInputs,
) -> Vec<Arc<dyn MetricSource>> {
    let inputs = Arc::new(inputs);
    let mut sources: Vec<Arc<dyn MetricSource>> = Vec::new();
    if let Some(certificate) = dependencies.client {
        let current = CurrentCertificate::new(None);
        let purpose = CertificatePurpose::Client;
        sources.push(Arc::new(CertificateTtl::new(purpose, current.subscribe(), &inputs.clock)));
        sources.push(Arc::new(RenewalCounts { purpose, metrics: inputs.metrics.clone() }));
        let task = Arc::new(client::ClientTask::new(certificate, inputs.clone(), current));
        tree.start("client-certificate", move || client::keep_current(task.clone()));
    }
    if let Some(store) = dependencies.serving {
        let current = CurrentCertificate::new(None);
        let purpose = CertificatePurpose::Serving;
        sources.push(Arc::new(CertificateTtl::new(purpose, current.subscribe(), &inputs.clock)));
        sources.push(Arc::new(RenewalCounts { purpose, metrics: inputs.metrics.clone() }));
        let task = Arc::new(serving::ServingTask::new(store, inputs, current));
        tree.start("serving-certificate", move || serving::keep_current(task.clone()));
    }
    sources
}
