//! A runtime that runs nothing and records the requests that it receives.
//!
//! The rule it keeps: every request succeeds: every image exists, every sandbox gets an address,
//! every container starts; those whose names begin with `init` exit at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use anyhow::{Context as _, Result};
use cri_wire::v1;
use cri_wire::v1::image_service_server::{ImageService, ImageServiceServer};
use cri_wire::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// The address of every sandbox that is not on the host's network.
pub const POD_ADDRESS: &str = "10.88.0.7";

type CriResult<T> = Result<Response<T>, Status>;

#[derive(Debug, Clone)]
struct RecordedContainer {
    sandbox: String,
    config: v1::ContainerConfig,
    state: v1::ContainerState,
    created: i64,
}

#[derive(Debug, Default)]
struct RecordedState {
    sandboxes: BTreeMap<String, (v1::PodSandboxConfig, i64)>,
    containers: BTreeMap<String, RecordedContainer>,
    clock: i64,
}

/// Cheap to clone; clones share the recording.
#[derive(Debug, Clone, Default)]
pub struct CriRecorder(Arc<Mutex<RecordedState>>);

/// A recorder on a socket; it stops when this value is dropped.
pub struct RecorderServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for RecorderServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct RecorderConnections(UnixListener);

impl Stream for RecorderConnections {
    type Item = std::io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

impl CriRecorder {
    pub fn serve(&self, socket: &Path) -> Result<RecorderServer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(socket).with_context(|| socket.display().to_string())?
        };
        let (stop, stopped) = oneshot::channel();
        let recorder = self.clone();
        let thread = thread::spawn(move || {
            let serving = tonic::transport::Server::builder()
                .add_service(RuntimeServiceServer::new(recorder.clone()))
                .add_service(ImageServiceServer::new(recorder))
                .serve_with_incoming_shutdown(RecorderConnections(listener), async {
                    stopped.await.ok();
                });
            if let Err(error) = runtime.block_on(serving) {
                eprintln!("the recording runtime failed: {error}");
            }
        });
        Ok(RecorderServer { stop: Some(stop), thread: Some(thread) })
    }

    fn recorded(&self) -> MutexGuard<'_, RecordedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests for a pod: its last sandbox, and the first of each of its containers.
    pub fn of_pod(&self, uid: &str) -> Option<(v1::PodSandboxConfig, Vec<v1::ContainerConfig>)> {
        let recorded = self.recorded();
        let of = |config: &v1::PodSandboxConfig| {
            config.metadata.as_ref().is_some_and(|metadata| metadata.uid == uid)
        };
        let (id, (sandbox, _)) = recorded.sandboxes.iter().find(|(_, (config, _))| of(config))?;
        let mut containers: Vec<&RecordedContainer> =
            recorded.containers.values().filter(|made| made.sandbox == *id).collect();
        containers.sort_by_key(|made| made.created);
        Some((sandbox.clone(), containers.into_iter().map(|made| made.config.clone()).collect()))
    }

    fn image(name: &str) -> v1::Image {
        let (uid, username) = match name {
            "docker.io/library/named:1" | "named:1" => (None, "app"),
            "docker.io/library/number:1" | "number:1" => (Some(1000), ""),
            _ => (Some(0), ""),
        };
        v1::Image {
            id: format!("sha256:{name}"),
            repo_tags: vec![name.to_owned()],
            size: 1,
            uid: uid.map(|value| v1::Int64Value { value }),
            username: username.to_owned(),
            ..Default::default()
        }
    }
}

impl RecordedState {
    fn tick(&mut self) -> i64 {
        self.clock += 1;
        self.clock
    }

    fn status(id: &str, made: &RecordedContainer) -> v1::ContainerStatus {
        v1::ContainerStatus {
            id: id.to_owned(),
            metadata: made.config.metadata.clone(),
            state: made.state.into(),
            created_at: made.created,
            started_at: made.created,
            finished_at: made.created,
            image: made.config.image.clone(),
            image_ref: made.config.image.clone().unwrap_or_default().image,
            labels: made.config.labels.clone(),
            annotations: made.config.annotations.clone(),
            mounts: made.config.mounts.clone(),
            ..Default::default()
        }
    }
}

fn is_on_host(config: &v1::PodSandboxConfig) -> bool {
    let security = config.linux.clone().unwrap_or_default().security_context.unwrap_or_default();
    security.namespace_options.unwrap_or_default().network == i32::from(v1::NamespaceMode::Node)
}

#[tonic::async_trait]
impl RuntimeService for CriRecorder {
    async fn version(&self, _: Request<v1::VersionRequest>) -> CriResult<v1::VersionResponse> {
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "recorder".into(),
            runtime_version: "1.0.0".into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> CriResult<v1::StatusResponse> {
        let ready = |name: &str| v1::RuntimeCondition {
            r#type: name.into(),
            status: true,
            ..Default::default()
        };
        let conditions = vec![ready("RuntimeReady"), ready("NetworkReady")];
        let features =
            v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            runtime_handlers: vec![v1::RuntimeHandler {
                name: String::new(),
                features: Some(features),
            }],
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                ..Default::default()
            }),
            ..Default::default()
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> CriResult<v1::RunPodSandboxResponse> {
        let mut recorded = self.recorded();
        let created = recorded.tick();
        let pod_sandbox_id = format!("sandbox{created:04}");
        let config = request.into_inner().config.unwrap_or_default();
        recorded.sandboxes.insert(pod_sandbox_id.clone(), (config, created));
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        _: Request<v1::StopPodSandboxRequest>,
    ) -> CriResult<v1::StopPodSandboxResponse> {
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<v1::ListPodSandboxRequest>,
    ) -> CriResult<v1::ListPodSandboxResponse> {
        let recorded = self.recorded();
        let items = recorded.sandboxes.iter().map(|(id, (config, created_at))| v1::PodSandbox {
            id: id.clone(),
            metadata: config.metadata.clone(),
            created_at: *created_at,
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            ..Default::default()
        });
        Ok(Response::new(v1::ListPodSandboxResponse { items: items.collect() }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> CriResult<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let recorded = self.recorded();
        let (config, created_at) =
            recorded.sandboxes.get(&id).ok_or_else(|| Status::not_found(id.clone()))?;
        let security =
            config.linux.clone().unwrap_or_default().security_context.unwrap_or_default();
        let ip = if is_on_host(config) { String::new() } else { POD_ADDRESS.to_owned() };
        let status = v1::PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            created_at: *created_at,
            network: Some(v1::PodSandboxNetworkStatus { ip, ..Default::default() }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace { options: security.namespace_options }),
            }),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            ..Default::default()
        };
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(status),
            ..Default::default()
        }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> CriResult<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let mut recorded = self.recorded();
        let created = recorded.tick();
        let container_id = format!("container{created:04}");
        let made = RecordedContainer {
            sandbox: request.pod_sandbox_id,
            config: request.config.unwrap_or_default(),
            state: v1::ContainerState::ContainerCreated,
            created,
        };
        recorded.containers.insert(container_id.clone(), made);
        Ok(Response::new(v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> CriResult<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        let mut recorded = self.recorded();
        let made = recorded.containers.get_mut(&id).ok_or_else(|| Status::not_found(id))?;
        let name = made.config.metadata.clone().unwrap_or_default().name;
        made.state = if name.starts_with("init") {
            v1::ContainerState::ContainerExited
        } else {
            v1::ContainerState::ContainerRunning
        };
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> CriResult<v1::StopContainerResponse> {
        let id = request.into_inner().container_id;
        if let Some(made) = self.recorded().containers.get_mut(&id) {
            made.state = v1::ContainerState::ContainerExited;
        }
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn list_containers(
        &self,
        _: Request<v1::ListContainersRequest>,
    ) -> CriResult<v1::ListContainersResponse> {
        let recorded = self.recorded();
        let containers = recorded.containers.iter().map(|(id, made)| v1::Container {
            id: id.clone(),
            pod_sandbox_id: made.sandbox.clone(),
            metadata: made.config.metadata.clone(),
            image: made.config.image.clone(),
            state: made.state.into(),
            created_at: made.created,
            labels: made.config.labels.clone(),
            annotations: made.config.annotations.clone(),
            ..Default::default()
        });
        Ok(Response::new(v1::ListContainersResponse { containers: containers.collect() }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> CriResult<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let recorded = self.recorded();
        let made = recorded.containers.get(&id).ok_or_else(|| Status::not_found(id.clone()))?;
        let status = Some(RecordedState::status(&id, made));
        Ok(Response::new(v1::ContainerStatusResponse { status, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl ImageService for CriRecorder {
    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> CriResult<v1::ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let image = Some(Self::image(&name));
        Ok(Response::new(v1::ImageStatusResponse { image, ..Default::default() }))
    }

    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> CriResult<v1::ListImagesResponse> {
        Ok(Response::new(v1::ListImagesResponse::default()))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> CriResult<v1::PullImageResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        Ok(Response::new(v1::PullImageResponse { image_ref: Self::image(&name).id }))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> CriResult<v1::ImageFsInfoResponse> {
        Ok(Response::new(v1::ImageFsInfoResponse::default()))
    }
}
