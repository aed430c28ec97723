//! Answers of the pod resources API, from what admission and the devices have published.
//!
//! Rule: active pods are those that were admitted and have not ended.
//!
//! upstream: pkg/kubelet/apis/podresources/server_v1.go

use super::devices::DeviceService;
use crate::admission::Admissions;
use crate::metrics::{Metrics, names};
use ports::plugins::{
    PodResourcesApi, PodResourcesEndpoint, PodResourcesRequest, ReportedDevices, ReportedPod,
};
use std::sync::Arc;
use std::time::Duration;
use tracing::error;

const SERVE_RETRY_DELAY: Duration = Duration::from_secs(5);

pub(crate) struct PodResources {
    pub(super) devices: Arc<DeviceService>,
    pub(super) admissions: Admissions,
    pub(super) metrics: Metrics,
}

impl PodResourcesApi for PodResources {
    fn count(&self, request: PodResourcesRequest) {
        let (version, metric) = match request {
            PodResourcesRequest::AlphaList => ("v1alpha1", None),
            PodResourcesRequest::List => ("v1", Some(&names::POD_RESOURCES_LIST)),
            PodResourcesRequest::Allocatable => ("v1", Some(&names::POD_RESOURCES_ALLOCATABLE)),
            PodResourcesRequest::Get { .. } => ("v1", Some(&names::POD_RESOURCES_GET)),
        };
        self.metrics.count(&names::POD_RESOURCES_REQUESTS, &[version]);
        if let Some(metric) = metric {
            self.metrics.count(metric, &[version]);
        }
        if request == (PodResourcesRequest::Get { found: false }) {
            self.metrics.count(&names::POD_RESOURCES_GET_ERRORS, &[version]);
        }
    }

    fn pods(&self) -> Vec<ReportedPod> {
        let pods = self.admissions.admitted();
        pods.iter().map(|pod| self.devices.reported_pod(pod)).collect()
    }

    fn allocatable(&self) -> Vec<ReportedDevices> {
        self.devices.reported_allocatable()
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<ReportedPod> {
        let pods = self.admissions.known_pods();
        let mut named = pods
            .iter()
            .filter(|pod| *pod.metadata.namespace == *namespace && *pod.metadata.name == *name);
        named.next().map(|pod| self.devices.reported_pod(pod))
    }
}

/// Serves the API for ever.
pub(super) async fn serve(endpoint: Arc<dyn PodResourcesEndpoint>, api: Arc<PodResources>) {
    loop {
        let why = endpoint.serve(api.clone()).await;
        error!(
            address = endpoint.address(),
            err = why,
            retry_in_seconds = SERVE_RETRY_DELAY.as_secs(),
            "Cannot serve the pod resources API"
        );
        tokio::time::sleep(SERVE_RETRY_DELAY).await;
    }
}
