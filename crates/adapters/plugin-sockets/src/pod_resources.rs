//! Serves the pod resources API, in both of its versions.
//!
//! Rule: one socket, one rate limit for all of its clients; a request above it is refused at once.
//! Answers from what the agent has published.
//!
//! upstream: pkg/kubelet/apis/podresources, pkg/kubelet/apis/grpc/ratelimit.go

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plugin_wire::pod_resources as v1;
use plugin_wire::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use plugin_wire::pod_resources_v1alpha1 as v1alpha1;
use plugin_wire::pod_resources_v1alpha1::pod_resources_lister_server as alpha_server;
use ports::PortFuture;
use ports::plugins::{
    PodResourcesApi, PodResourcesEndpoint, PodResourcesRequest, ReportedDevices, ReportedPod,
};
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::serve::{REQUEST_SIZE_LIMIT, listen, serve};

#[cfg(test)]
mod tests;

const REQUESTS_PER_SECOND: f64 = 100.0;
const BURST: f64 = 10.0;

/// The socket of the pod resources API.
pub struct PodResourcesSocket {
    path: PathBuf,
}

impl PodResourcesSocket {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl PodResourcesEndpoint for PodResourcesSocket {
    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn serve(&self, api: Arc<dyn PodResourcesApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            let listener = match listen(&self.path) {
                Ok(listener) => listener,
                Err(error) => return error,
            };
            let lister = Lister { api, limit: Arc::new(RequestRate::new()) };
            let current = PodResourcesListerServer::new(lister.clone())
                .max_decoding_message_size(REQUEST_SIZE_LIMIT);
            let first = alpha_server::PodResourcesListerServer::new(lister)
                .max_decoding_message_size(REQUEST_SIZE_LIMIT);
            serve(listener, Routes::new(current).add_service(first)).await
        })
    }
}

/// Tokens that come back with time.
struct RequestRate {
    state: Mutex<(f64, Instant)>,
}

impl RequestRate {
    fn new() -> Self {
        Self { state: Mutex::new((BURST, Instant::now())) }
    }

    fn take(&self) -> Result<(), Status> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (tokens, last) = *state;
        let tokens = tokens + now.duration_since(last).as_secs_f64() * REQUESTS_PER_SECOND;
        let tokens = tokens.min(BURST);
        let allowed = tokens >= 1.0;
        *state = (if allowed { tokens - 1.0 } else { tokens }, now);
        if allowed { Ok(()) } else { Err(Status::resource_exhausted("rejected by rate limit")) }
    }
}

#[derive(Clone)]
struct Lister {
    api: Arc<dyn PodResourcesApi>,
    limit: Arc<RequestRate>,
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        self.limit.take()?;
        self.api.count(PodResourcesRequest::List);
        let pods = self.api.pods().into_iter().map(pod_of);
        Ok(Response::new(v1::ListPodResourcesResponse { pod_resources: pods.collect() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        self.limit.take()?;
        self.api.count(PodResourcesRequest::Allocatable);
        let devices = self.api.allocatable().into_iter().map(devices_of);
        Ok(Response::new(v1::AllocatableResourcesResponse {
            devices: devices.collect(),
            cpu_ids: Vec::new(),
            memory: Vec::new(),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        self.limit.take()?;
        let v1::GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let pod = self.api.pod(&pod_namespace, &pod_name);
        self.api.count(PodResourcesRequest::Get { found: pod.is_some() });
        let Some(pod) = pod else {
            let message = format!("pod {pod_name} in namespace {pod_namespace} not found");
            return Err(Status::unknown(message));
        };
        Ok(Response::new(v1::GetPodResourcesResponse { pod_resources: Some(pod_of(pod)) }))
    }
}

#[tonic::async_trait]
impl alpha_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        self.limit.take()?;
        self.api.count(PodResourcesRequest::AlphaList);
        let pods = self.api.pods().into_iter().map(|pod| v1alpha1::PodResources {
            name: pod.name,
            namespace: pod.namespace,
            containers: pod
                .containers
                .into_iter()
                .filter(|container| !container.sidecar)
                .map(|container| v1alpha1::ContainerResources {
                    name: container.name,
                    devices: container.devices.into_iter().map(alpha_devices_of).collect(),
                })
                .collect(),
        });
        Ok(Response::new(v1alpha1::ListPodResourcesResponse { pod_resources: pods.collect() }))
    }
}

fn pod_of(pod: ReportedPod) -> v1::PodResources {
    let containers = pod.containers.into_iter().map(|container| v1::ContainerResources {
        name: container.name,
        devices: container.devices.into_iter().map(devices_of).collect(),
        ..v1::ContainerResources::default()
    });
    v1::PodResources { name: pod.name, namespace: pod.namespace, containers: containers.collect() }
}

fn devices_of(devices: ReportedDevices) -> v1::ContainerDevices {
    let nodes: Vec<v1::NumaNode> =
        devices.numa_nodes.into_iter().map(|id| v1::NumaNode { id }).collect();
    v1::ContainerDevices {
        resource_name: devices.resource,
        device_ids: devices.ids,
        topology: (!nodes.is_empty()).then_some(v1::TopologyInfo { nodes }),
    }
}

fn alpha_devices_of(devices: ReportedDevices) -> v1alpha1::ContainerDevices {
    v1alpha1::ContainerDevices { resource_name: devices.resource, device_ids: devices.ids }
}
