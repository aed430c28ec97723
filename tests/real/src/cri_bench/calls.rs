//! The CRI calls that are measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;
use cri_wire::v1::image_service_client::ImageServiceClient;
use cri_wire::v1::runtime_service_client::RuntimeServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// A connection to a runtime.
#[derive(Debug, Clone)]
pub struct CriConnection {
    client: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    logs: PathBuf,
    group: String,
}

/// Which network a pod gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchNetwork {
    Host,
    Plugins,
}

/// The times of one pod's calls.
#[derive(Debug, Clone, Copy)]
pub struct PodCallTimes {
    pub sandbox: Duration,
    pub create: Duration,
    pub start: Duration,
}

impl PodCallTimes {
    pub fn whole(&self) -> Duration {
        self.sandbox + self.create + self.start
    }
}

/// A running pod.
#[derive(Debug, Clone)]
pub struct BenchPod {
    pub sandbox: String,
    pub container: String,
    pub log: PathBuf,
    pub took: PodCallTimes,
}

impl CriConnection {
    /// The logs of its pods go to this directory, and their cgroups are below `group`.
    pub async fn connect(socket: &Path, logs: &Path, group: &str) -> Result<Self> {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .with_context(|| socket.display().to_string())?;
        let client = RuntimeServiceClient::new(channel.clone())
            .max_decoding_message_size(cri_wire::MESSAGE_SIZE_LIMIT);
        let images = ImageServiceClient::new(channel);
        Ok(Self { client, images, logs: logs.to_owned(), group: group.to_owned() })
    }

    /// RunPodSandbox, CreateContainer, StartContainer: the calls of any agent for a pod of one
    /// container.
    pub async fn pod(
        &self,
        name: &str,
        network: BenchNetwork,
        (image, command): (&str, &[&str]),
    ) -> Result<BenchPod> {
        let mut client = self.client.clone();
        let sandbox_config = self.sandbox(name, network);
        // As a kubelet does before its first call.
        std::fs::create_dir_all(&sandbox_config.log_directory)?;
        let begun = Instant::now();
        let run =
            v1::RunPodSandboxRequest { config: Some(sandbox_config.clone()), ..Default::default() };
        let answer = Box::pin(client.run_pod_sandbox(run)).await.context("RunPodSandbox")?;
        let sandbox = answer.into_inner().pod_sandbox_id;
        let made = begun.elapsed();
        let create = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container(image, command)),
            sandbox_config: Some(sandbox_config),
        };
        let answer = Box::pin(client.create_container(create)).await.context("CreateContainer")?;
        let container = answer.into_inner().container_id;
        let created = begun.elapsed();
        let start = v1::StartContainerRequest { container_id: container.clone() };
        client.start_container(start).await.context("StartContainer")?;
        let took = PodCallTimes {
            sandbox: made,
            create: created - made,
            start: begun.elapsed() - created,
        };
        Ok(BenchPod { sandbox, container, log: self.logs.join(name).join("main.log"), took })
    }

    pub async fn remove(&self, pod: &BenchPod) -> Result<Duration> {
        let mut client = self.client.clone();
        let begun = Instant::now();
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() };
        client.stop_pod_sandbox(request).await.context("StopPodSandbox")?;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() };
        client.remove_pod_sandbox(request).await.context("RemovePodSandbox")?;
        Ok(begun.elapsed())
    }

    /// One round trip of a command that does nothing.
    pub async fn exec(&self, pod: &BenchPod) -> Result<Duration> {
        let request = v1::ExecSyncRequest {
            container_id: pod.container.clone(),
            cmd: vec!["true".to_owned()],
            timeout: 30,
        };
        let begun = Instant::now();
        let answer = self.client.clone().exec_sync(request).await.context("ExecSync")?;
        ensure!(answer.into_inner().exit_code == 0, "true failed");
        Ok(begun.elapsed())
    }

    pub async fn until_exited(&self, pod: &BenchPod) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(5) {
            let request =
                v1::ContainerStatusRequest { container_id: pod.container.clone(), verbose: false };
            let answer = self.client.clone().container_status(request).await?.into_inner();
            let status = answer.status.context("a status")?;
            if status.state() == v1::ContainerState::ContainerExited {
                ensure!(status.exit_code == 0, "it ended with {}", status.exit_code);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("a container did not end within five minutes")
    }

    /// Pulls an image and returns how long that took; the image is removed again.
    pub async fn pull(&self, image: &str) -> Result<Duration> {
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::PullImageRequest { image: Some(spec.clone()), ..Default::default() };
        let mut images = self.images.clone();
        let begun = Instant::now();
        images.pull_image(request).await.context("PullImage")?;
        let took = begun.elapsed();
        images.remove_image(v1::RemoveImageRequest { image: Some(spec) }).await?;
        Ok(took)
    }
}

impl CriConnection {
    fn sandbox(&self, name: &str, network: BenchNetwork) -> v1::PodSandboxConfig {
        let network = match network {
            BenchNetwork::Host => v1::NamespaceMode::Node,
            BenchNetwork::Plugins => v1::NamespaceMode::Pod,
        };
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            log_directory: self.logs.join(name).display().to_string(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.group.clone(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: network.into(),
                        pid: v1::NamespaceMode::Container.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn container(image: &str, command: &[&str]) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() }),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        log_path: "main.log".to_owned(),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                cpu_shares: 102,
                memory_limit_in_bytes: 256 << 20,
                ..Default::default()
            }),
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: v1::NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}
