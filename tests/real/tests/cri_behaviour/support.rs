//! Shared by the cases: CRI calls, small pods, and the cleanup after each case.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;
use cri_wire::v1::image_service_client::ImageServiceClient;
use cri_wire::v1::runtime_service_client::RuntimeServiceClient;
use hyper_util::rt::TokioIo;
use node_testkit::bed::Bed;
use node_testkit::images;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub(crate) const BUSYBOX: &str = images::BUSYBOX;
/// Runs as user 1000 by name, has a volume, a stop signal and its own entrypoint.
pub(crate) const CONFIGURED: &str = "registry.test/configured:1";

/// Has no command or entrypoint.
pub(crate) const COMMANDLESS: &str = "registry.test/commandless:1";
/// Its volumes are at symlinks and paths that lead out of its root.
pub(crate) const VOLUMES: &str = "registry.test/volumes:1";
/// Its volumes have files, owners and modes in the image, or do not exist in it.
pub(crate) const FILLED: &str = "registry.test/filled:1";
/// Its volume is a file.
pub(crate) const FILE_VOLUME: &str = "registry.test/file-volume:1";
/// For the case that removes an image.
pub(crate) const SPARE: &str = "registry.test/spare:1";

const LARGEST: usize = cri_wire::MESSAGE_SIZE_LIMIT;

pub(crate) type CaseFn = for<'a> fn(&'a Cri) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

pub(crate) struct CriCase {
    pub(crate) name: &'static str,
    pub(crate) run: CaseFn,
}

/// Images as archives, built once before the bed.
pub(crate) struct Archives(Vec<images::BuiltImage>);

pub(crate) fn archives() -> Result<Archives> {
    let configured = images::busybox()?.named(CONFIGURED).configured(|config| {
        config.user = "nobody".to_owned();
        config.env.push("FROM_IMAGE=yes".to_owned());
        config.entrypoint = vec!["/bin/sh".to_owned(), "-c".to_owned()];
        config.cmd = vec!["id -u; pwd; echo $FROM_IMAGE".to_owned()];
        config.working_dir = "/tmp".to_owned();
    });
    let commandless = images::busybox()?.named(COMMANDLESS).configured(|config| {
        config.cmd.clear();
    });
    let volumes = images::busybox()?
        .named(VOLUMES)
        .with_link("/absolute", "/etc")
        .with_link("/relative", "../../../../../../../../../../etc")
        .configured(|config| {
            let paths = ["/absolute", "/relative", "/../../../../../../../../../led/up"];
            config.volumes = paths.map(|path| (path.to_owned(), Default::default())).into();
        });
    let spare = images::busybox()?.named(SPARE);
    let mut all = vec![images::pause()?, images::busybox()?, configured, commandless];
    all.extend([volumes, spare, filled()?, file_volume()?]);
    Ok(Archives(all.iter().map(images::TestImage::build).collect::<Result<_>>()?))
}

fn filled() -> Result<images::TestImage> {
    let image = images::busybox()?
        .named(FILLED)
        .with_directory("/filled", 0o2750)
        .owned_by("/filled", 1000, 1001)
        .with_bytes("/filled/file", 0o640, "of the image\n")
        .owned_by("/filled/file", 1002, 1003)
        .with_bytes("/filled/deep/er/file", 0o400, "deep\n")
        .with_link("/filled/link", "file")
        .with_bytes("/behind/file", 0o644, "behind a link\n")
        .with_link("/by-link", "/behind");
    Ok(image.configured(|config| {
        let paths = ["/filled/", "/by-link", "/bare/volume", "relative"];
        config.volumes = paths.map(|path| (path.to_owned(), Default::default())).into();
    }))
}

fn file_volume() -> Result<images::TestImage> {
    Ok(images::busybox()?.named(FILE_VOLUME).configured(|config| {
        config.volumes = [("/etc/passwd".to_owned(), Default::default())].into();
    }))
}

impl Archives {
    /// The archives as files in the bed.
    pub(crate) fn of(&self, bed: &Bed) -> Result<Vec<PathBuf>> {
        let dir = bed.create_dir("archives")?;
        let mut all = Vec::new();
        for (at, built) in self.0.iter().enumerate() {
            let path = dir.join(format!("{at}.tar"));
            built.write_docker_archive(&path)?;
            all.push(path);
        }
        Ok(all)
    }
}

/// A runtime, and what one case created in it.
pub(crate) struct Cri {
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) dir: PathBuf,
    case: &'static str,
    counter: std::cell::Cell<u32>,
}

/// The code of an error; a success is an error.
pub(crate) fn code<T>(outcome: Result<T, Status>) -> Result<Code> {
    match outcome {
        Ok(_) => bail!("it was answered; a refusal was expected"),
        Err(status) => Ok(status.code()),
    }
}

pub(crate) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

impl Cri {
    pub(crate) async fn connect(socket: &Path, bed: &Path, case: &'static str) -> Result<Self> {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .context("connect to the runtime")?;
        let dir = bed.join("cases").join(case);
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(LARGEST)
                .max_encoding_message_size(LARGEST),
            images: ImageServiceClient::new(channel),
            dir,
            case,
            counter: std::cell::Cell::new(0),
        })
    }

    pub(crate) fn rt(&self) -> RuntimeServiceClient<Channel> {
        self.runtime.clone()
    }

    pub(crate) fn im(&self) -> ImageServiceClient<Channel> {
        self.images.clone()
    }

    /// Removes everything that the case left; it may have failed half-way.
    pub(crate) async fn clean(&self) {
        let Ok(list) = self.rt().list_pod_sandbox(v1::ListPodSandboxRequest::default()).await
        else {
            return;
        };
        for sandbox in list.into_inner().items {
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id };
            let _ = self.rt().remove_pod_sandbox(request).await;
        }
    }

    fn next(&self) -> u32 {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }

    /// A small pod on the host's network.
    pub(crate) fn pod(&self) -> v1::PodSandboxConfig {
        let number = self.next();
        let name = format!("{}-{number}", self.case.replace('_', "-"));
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.clone(),
                uid: format!("uid-{name}"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            // A pod on the host's network has the host's name.
            hostname: String::new(),
            log_directory: self.dir.display().to_string(),
            labels: [("case".to_owned(), self.case.to_owned())].into(),
            annotations: [("note".to_owned(), "kept".to_owned())].into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: "/behaviour".to_owned(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: v1::NamespaceMode::Node.into(),
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

    /// A small pod with its own network.
    pub(crate) fn networked_pod(&self) -> v1::PodSandboxConfig {
        let mut pod = self.pod();
        pod_options(&mut pod).network = v1::NamespaceMode::Pod.into();
        pod.hostname = "pod-host".to_owned();
        pod
    }

    pub(crate) async fn run(&self, pod: &v1::PodSandboxConfig) -> Result<String> {
        let request =
            v1::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
        let mut runtime = self.rt();
        let answer = Box::pin(runtime.run_pod_sandbox(request)).await.context("RunPodSandbox")?;
        Ok(answer.into_inner().pod_sandbox_id)
    }

    /// A container that runs a shell script.
    pub(crate) fn container(&self, script: &str) -> v1::ContainerConfig {
        let name = format!("c{}", self.next());
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.clone(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: BUSYBOX.to_owned(), ..Default::default() }),
            command: texts(&["sh", "-c", script]),
            log_path: format!("{name}.log"),
            labels: [("kind".to_owned(), "container".to_owned())].into(),
            linux: Some(v1::LinuxContainerConfig {
                resources: None,
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

    pub(crate) async fn create(
        &self,
        sandbox: &str,
        pod: &v1::PodSandboxConfig,
        container: &v1::ContainerConfig,
    ) -> Result<String, Status> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(container.clone()),
            sandbox_config: Some(pod.clone()),
        };
        let mut runtime = self.rt();
        Ok(Box::pin(runtime.create_container(request)).await?.into_inner().container_id)
    }

    pub(crate) async fn start(&self, container: &str) -> Result<(), Status> {
        let request = v1::StartContainerRequest { container_id: container.to_owned() };
        self.rt().start_container(request).await.map(drop)
    }

    pub(crate) async fn stop(&self, container: &str, timeout: i64) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: container.to_owned(), timeout };
        self.rt().stop_container(request).await.map(drop)
    }

    pub(crate) async fn remove(&self, container: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest { container_id: container.to_owned() };
        self.rt().remove_container(request).await.map(drop)
    }

    pub(crate) async fn status(&self, container: &str) -> Result<v1::ContainerStatus, Status> {
        let request =
            v1::ContainerStatusRequest { container_id: container.to_owned(), verbose: false };
        let answer = self.rt().container_status(request).await?.into_inner();
        answer.status.ok_or_else(|| Status::internal("no status"))
    }

    pub(crate) async fn pod_status(&self, sandbox: &str) -> Result<v1::PodSandboxStatus, Status> {
        let request =
            v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
        let answer = self.rt().pod_sandbox_status(request).await?.into_inner();
        answer.status.ok_or_else(|| Status::internal("no status"))
    }

    pub(crate) async fn stop_pod(&self, sandbox: &str) -> Result<(), Status> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.rt().stop_pod_sandbox(request).await.map(drop)
    }

    pub(crate) async fn remove_pod(&self, sandbox: &str) -> Result<(), Status> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.rt().remove_pod_sandbox(request).await.map(drop)
    }

    /// A pod with one running container.
    pub(crate) async fn running(&self, script: &str) -> Result<StartedContainer> {
        let pod = self.pod();
        let container = self.container(script);
        Box::pin(self.running_as(pod, container)).await
    }

    pub(crate) async fn running_as(
        &self,
        pod: v1::PodSandboxConfig,
        container: v1::ContainerConfig,
    ) -> Result<StartedContainer> {
        let sandbox = Box::pin(self.run(&pod)).await?;
        let creating = Box::pin(self.create(&sandbox, &pod, &container));
        let id = creating.await.context("CreateContainer")?;
        Box::pin(self.start(&id)).await.context("StartContainer")?;
        Ok(StartedContainer { pod, sandbox, id, log: self.dir.join(&container.log_path) })
    }

    /// Runs a container to its end and returns its exit code and its output.
    pub(crate) async fn ran(
        &self,
        pod: v1::PodSandboxConfig,
        container: v1::ContainerConfig,
    ) -> Result<(i32, String)> {
        let running = Box::pin(self.running_as(pod, container)).await?;
        let status = self.until_ended(&running.id).await?;
        Ok((status.exit_code, running.output()?))
    }

    /// The same for a script in an ordinary container.
    pub(crate) async fn script(&self, script: &str) -> Result<(i32, String)> {
        Box::pin(self.ran(self.pod(), self.container(script))).await
    }

    pub(crate) async fn until_ended(&self, id: &str) -> Result<v1::ContainerStatus> {
        self.until(id, v1::ContainerState::ContainerExited).await
    }

    pub(crate) async fn until(
        &self,
        id: &str,
        state: v1::ContainerState,
    ) -> Result<v1::ContainerStatus> {
        let begun = Instant::now();
        loop {
            let status = self.status(id).await?;
            if status.state() == state {
                return Ok(status);
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "still {:?}, expected {state:?}",
                status.state()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn exec(
        &self,
        id: &str,
        command: &[&str],
        timeout: i64,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let request =
            v1::ExecSyncRequest { container_id: id.to_owned(), cmd: texts(command), timeout };
        Ok(self.rt().exec_sync(request).await?.into_inner())
    }
}

/// A running container and its identities.
pub(crate) struct StartedContainer {
    pub(crate) pod: v1::PodSandboxConfig,
    pub(crate) sandbox: String,
    pub(crate) id: String,
    pub(crate) log: PathBuf,
}

impl StartedContainer {
    /// The container's standard output, without timestamps. Standard error may be interleaved with
    /// it.
    pub(crate) fn output(&self) -> Result<String> {
        let mut all = String::new();
        for line in self.lines()?.into_iter().filter(|line| line.stream == "stdout") {
            all.push_str(&line.text);
            if line.whole {
                all.push('\n');
            }
        }
        Ok(all)
    }

    pub(crate) fn lines(&self) -> Result<Vec<CriLogLine>> {
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("read {}", self.log.display()))?;
        text.lines().map(CriLogLine::parse).collect()
    }
}

/// A line of a CRI log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CriLogLine {
    pub(crate) stamp: String,
    pub(crate) stream: String,
    pub(crate) whole: bool,
    pub(crate) text: String,
}

impl CriLogLine {
    fn parse(line: &str) -> Result<Self> {
        let mut parts = line.splitn(4, ' ');
        let mut next = || parts.next().map(str::to_owned).context("a log line is too short");
        let (stamp, stream, tag) = (next()?, next()?, next()?);
        let text = next().unwrap_or_default();
        ensure!(matches!(tag.as_str(), "F" | "P"), "the tag {tag:?} of {line:?}");
        Ok(Self { stamp, stream, whole: tag == "F", text })
    }
}

/// The namespace options of a pod, for changes.
pub(crate) fn pod_options(pod: &mut v1::PodSandboxConfig) -> &mut v1::NamespaceOption {
    pod.linux
        .get_or_insert_default()
        .security_context
        .get_or_insert_default()
        .namespace_options
        .get_or_insert_default()
}

/// The security context of a container, for changes.
pub(crate) fn security(
    container: &mut v1::ContainerConfig,
) -> &mut v1::LinuxContainerSecurityContext {
    container.linux.get_or_insert_default().security_context.get_or_insert_default()
}
