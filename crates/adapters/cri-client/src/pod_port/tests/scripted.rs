//! A runtime with pods that behaves as the ids in its requests say.
//!
//! Rule: `hang`, `gone`, `broken`, `no-status` and `other-id` are behaviours; any other id is
//! healthy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cri_wire::v1;
use cri_wire::v1::image_service_server::{ImageService, ImageServiceServer};
use cri_wire::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use tonic::{Request, Response, Status};

use super::super::records::POD_UID_LABEL;
use crate::RuntimeTransport;

type Answer<T> = Result<Response<T>, Status>;

#[derive(Default)]
struct ScriptState {
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
    current: AtomicUsize,
    max_concurrent: AtomicUsize,
    recorded_calls: Mutex<Vec<String>>,
}

#[derive(Clone, Default)]
pub(super) struct PodScript(Arc<ScriptState>);

fn labels(uid: &str) -> std::collections::BTreeMap<String, String> {
    [(POD_UID_LABEL.to_owned(), uid.to_owned())].into()
}

/// Sandboxes as (pod, id), containers as (pod, sandbox, id).
pub(super) fn script(sandboxes: &[(&str, &str)], containers: &[(&str, &str, &str)]) -> PodScript {
    let sandboxes = sandboxes.iter().map(|(uid, id)| v1::PodSandbox {
        id: (*id).to_owned(),
        labels: labels(uid),
        ..Default::default()
    });
    let containers = containers.iter().map(|(uid, sandbox, id)| v1::Container {
        id: (*id).to_owned(),
        pod_sandbox_id: (*sandbox).to_owned(),
        labels: labels(uid),
        ..Default::default()
    });
    PodScript(Arc::new(ScriptState {
        sandboxes: sandboxes.collect(),
        containers: containers.collect(),
        ..Default::default()
    }))
}

impl PodScript {
    pub(super) fn transport(&self) -> RuntimeTransport {
        RuntimeTransport::in_process("scripted", RuntimeServiceServer::new(self.clone()))
    }

    pub(super) fn image_transport(&self) -> RuntimeTransport {
        RuntimeTransport::in_process("scripted images", ImageServiceServer::new(self.clone()))
    }

    pub(super) fn max_concurrent_calls(&self) -> usize {
        self.0.max_concurrent.load(Ordering::SeqCst)
    }

    pub(super) fn recorded_calls(&self) -> Vec<String> {
        self.0.recorded_calls.lock().expect("not poisoned").clone()
    }

    fn note(&self, what: String) {
        self.0.recorded_calls.lock().expect("not poisoned").push(what);
    }

    /// Behaves as the id says, long enough for others to come along.
    async fn behave(&self, id: &str) -> Result<(), Status> {
        let current = self.0.current.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.max_concurrent.fetch_max(current, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.0.current.fetch_sub(1, Ordering::SeqCst);
        match id {
            "hang" => std::future::pending().await,
            "gone" => Err(Status::not_found("gone")),
            "broken" => Err(Status::internal("broken")),
            _ => Ok(()),
        }
    }
}

fn reported_id(id: &str) -> String {
    if id == "other-id" { "another".to_owned() } else { id.to_owned() }
}

#[tonic::async_trait]
impl RuntimeService for PodScript {
    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let chosen = self.0.sandboxes.iter().filter(|it| wanted.is_empty() || it.labels == wanted);
        Ok(Response::new(v1::ListPodSandboxResponse { items: chosen.cloned().collect() }))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<v1::ListContainersResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let chosen = self.0.containers.iter().filter(|it| wanted.is_empty() || it.labels == wanted);
        Ok(Response::new(v1::ListContainersResponse { containers: chosen.cloned().collect() }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.behave(&id).await?;
        let network = v1::PodSandboxNetworkStatus { ip: "10.0.0.1".into(), ..Default::default() };
        let status = (id != "no-status").then(|| v1::PodSandboxStatus {
            id: reported_id(&id),
            network: Some(network),
            ..Default::default()
        });
        Ok(Response::new(v1::PodSandboxStatusResponse { status, ..Default::default() }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.behave(&id).await?;
        let status = (id != "no-status").then(|| v1::ContainerStatus {
            id: reported_id(&id),
            state: v1::ContainerState::ContainerRunning.into(),
            ..Default::default()
        });
        Ok(Response::new(v1::ContainerStatusResponse { status, ..Default::default() }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Answer<v1::RunPodSandboxResponse> {
        let pod_sandbox_id = format!("sandbox-on-{}", request.into_inner().runtime_handler);
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        self.behave(&request.into_inner().pod_sandbox_id).await?;
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        self.behave(&request.into_inner().pod_sandbox_id).await?;
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let name = request.config.unwrap_or_default().metadata.unwrap_or_default().name;
        let id = format!("{name}-in-{}", request.pod_sandbox_id);
        let container_id = if name.is_empty() { String::new() } else { id };
        Ok(Response::new(v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answer<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.behave(&id).await?;
        self.note(format!("start {id}"));
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Answer<v1::StopContainerResponse> {
        let request = request.into_inner();
        self.behave(&request.container_id).await?;
        self.note(format!("stop {} in {}", request.container_id, request.timeout));
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        self.behave(&request.into_inner().container_id).await?;
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let shares = request.linux.unwrap_or_default().cpu_shares;
        self.note(format!("update {} to {shares}", request.container_id));
        Ok(Response::new(v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        self.note(format!("reopen {}", request.into_inner().container_id));
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> Answer<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let stdout = format!("{} within {}", request.cmd.join(" "), request.timeout).into();
        Ok(Response::new(v1::ExecSyncResponse { stdout, exit_code: 3, ..Default::default() }))
    }

    async fn list_container_stats(
        &self,
        _: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let attributes = Some(v1::ContainerAttributes { id: "c".into(), ..Default::default() });
        let stats = vec![v1::ContainerStats { attributes, ..Default::default() }];
        Ok(Response::new(v1::ListContainerStatsResponse { stats }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        let config = request.into_inner().runtime_config.unwrap_or_default();
        self.note(format!("cidr {}", config.network_config.unwrap_or_default().pod_cidr));
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> Answer<v1::RuntimeConfigResponse> {
        let linux = Some(v1::LinuxRuntimeConfiguration { cgroup_driver: 1 });
        Ok(Response::new(v1::RuntimeConfigResponse { linux }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let runtime_handlers = vec![v1::RuntimeHandler { name: "runc".into(), features: None }];
        Ok(Response::new(v1::StatusResponse { runtime_handlers, ..Default::default() }))
    }
}

fn image_name(image: Option<v1::ImageSpec>) -> String {
    image.unwrap_or_default().image
}

fn present() -> v1::Image {
    let uid = Some(v1::Int64Value { value: 0 });
    v1::Image { id: "sha256:present".into(), uid, ..Default::default() }
}

#[tonic::async_trait]
impl ImageService for PodScript {
    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Answer<v1::ImageStatusResponse> {
        let name = image_name(request.into_inner().image);
        self.behave(&name).await?;
        let image = match name.as_str() {
            "present" => Some(present()),
            "no-id" => Some(v1::Image::default()),
            _ => None,
        };
        Ok(Response::new(v1::ImageStatusResponse { image, ..Default::default() }))
    }

    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> Answer<v1::ListImagesResponse> {
        Ok(Response::new(v1::ListImagesResponse { images: vec![present()] }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Answer<v1::PullImageResponse> {
        let request = request.into_inner();
        self.behave(&image_name(request.image)).await?;
        let pod = request.sandbox_config.and_then(|config| config.metadata);
        let pod = pod.map(|pod| format!("-for-{}/{}", pod.namespace, pod.name)).unwrap_or_default();
        let image_ref = request.auth.map(|auth| format!("pulled-by-{}{pod}", auth.username));
        let image_ref = image_ref.unwrap_or_default();
        Ok(Response::new(v1::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        self.behave(&image_name(request.into_inner().image)).await?;
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> Answer<v1::ImageFsInfoResponse> {
        let at = |mountpoint: &str| {
            let fs_id = Some(v1::FilesystemIdentifier { mountpoint: mountpoint.into() });
            vec![v1::FilesystemUsage { fs_id, ..Default::default() }]
        };
        Ok(Response::new(v1::ImageFsInfoResponse {
            image_filesystems: at("/i"),
            container_filesystems: at("/c"),
        }))
    }
}
