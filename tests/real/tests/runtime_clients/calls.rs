//! CRI calls of these tests, and a small pod for them.

use std::path::Path;

use anyhow::{Context, Result};
use cri_wire::v1;
use cri_wire::v1::runtime_service_client::RuntimeServiceClient;
use hyper_util::rt::TokioIo;
use node_testkit::images;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

pub(crate) type RuntimeClient = RuntimeServiceClient<Channel>;

pub(crate) fn tasks() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub(crate) async fn connect(socket: &Path) -> Result<RuntimeClient> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .with_context(|| socket.display().to_string())?;
    Ok(RuntimeServiceClient::new(channel)
        .max_decoding_message_size(cri_wire::MESSAGE_SIZE_LIMIT)
        .max_encoding_message_size(cri_wire::MESSAGE_SIZE_LIMIT))
}

/// A pod with its own network.
pub(crate) fn pod(name: &str, logs: &Path) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: logs.display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: "/clients".to_owned(),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A kubelet's default namespace options.
fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() }
}

pub(crate) async fn run(runtime: &mut RuntimeClient, pod: &v1::PodSandboxConfig) -> Result<String> {
    let request = v1::RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
    let answer = Box::pin(runtime.run_pod_sandbox(request)).await.context("RunPodSandbox")?;
    Ok(answer.into_inner().pod_sandbox_id)
}

pub(crate) async fn remove(runtime: &mut RuntimeClient, sandbox: &str) -> Result<()> {
    let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
    runtime.remove_pod_sandbox(request).await.context("RemovePodSandbox")?;
    Ok(())
}

pub(crate) async fn address(runtime: &mut RuntimeClient, sandbox: &str) -> Result<String> {
    let request =
        v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
    let answer = runtime.pod_sandbox_status(request).await.context("PodSandboxStatus")?;
    let status = answer.into_inner().status.context("a status")?;
    Ok(status.network.unwrap_or_default().ip)
}

/// Starts a container that runs a shell script; returns its id.
pub(crate) async fn start(
    runtime: &mut RuntimeClient,
    (sandbox, pod): (&str, &v1::PodSandboxConfig),
    script: &str,
) -> Result<String> {
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: images::BUSYBOX.to_owned(), ..Default::default() }),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: "main.log".to_owned(),
        linux: Some(v1::LinuxContainerConfig {
            resources: None,
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(namespaces()),
                ..Default::default()
            }),
        }),
        ..Default::default()
    };
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: Some(pod.clone()),
    };
    let answer = Box::pin(runtime.create_container(request)).await.context("CreateContainer")?;
    let id = answer.into_inner().container_id;
    let request = v1::StartContainerRequest { container_id: id.clone() };
    runtime.start_container(request).await.context("StartContainer")?;
    Ok(id)
}
