//! The agent and the embedded runtime in one process, for pods from the command line.
//!
//! Rule: wiring only. The runtime's client calls the server type directly, without a socket. All
//! files are under `--root` and `--state`; pods have a cgroup of this root's own.

use super::background_store::BackgroundPodStore;
use super::desired_pods::{DesiredPods, DesiredPodsSender};
use super::manifest_contents::ManifestContents;
use super::monitor_pods::{PodMonitor, Shown};
use super::show::{EventPrinter, OutputMode};
use super::source::DesiredPodsSource;
use crate::idle_memory::IdleMemory;
use crate::kubelet::pod_dependencies::pod_dependencies;
use crate::progress_line::{self, ProgressLine};
use anyhow::{Context, Result};
use apiserver_client::ProxyEnvironment;
use container_runtime::{Runtime, RuntimeSettings};
use cri_client::{CallLimits, CriClient, RuntimeTransport};
use image_store::{ImageReference, ImageStore, ImportOptions, Limits, Platform};
use local_socket::AgentSocket;
use node_agent::{AgentDependencies, PodDependencies};
use node_config::{ConfigFiles, NodeConfig, SourceFile, flags};
use ports::{EventSink, PortFuture, ShutdownReason, ShutdownRequests};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

const WORKERS: usize = 2;
/// Disk and kernel work that may run at once.
const BLOCKING: usize = 64;

/// When true, pods that end are killed instead of waiting for their grace periods.
pub(super) type KillNow = watch::Sender<bool>;

/// The directories and files of one `keelson run`.
#[derive(Debug, Clone)]
pub(super) struct RunDirs {
    pub(super) root: PathBuf,
    pub(super) state: PathBuf,
    /// Settings of the embedded runtime.
    pub(super) runtime_config: Option<PathBuf>,
}

impl RunDirs {
    /// Makes the paths absolute.
    pub(super) fn new(root: &Path, state: &Path, runtime_config: Option<&Path>) -> Result<Self> {
        let absolute = |path: &Path| {
            std::path::absolute(path).with_context(|| format!("the path {}", path.display()))
        };
        Ok(Self {
            root: absolute(root)?,
            state: absolute(state)?,
            runtime_config: runtime_config.map(absolute).transpose()?,
        })
    }

    /// The runtime's settings, or what is wrong with its file.
    pub(super) fn settings(&self) -> Result<RuntimeSettings> {
        crate::cri::settings(&self.root, &self.state, self.runtime_config.as_deref())
    }

    pub(super) fn agent_root(&self) -> PathBuf {
        self.root.join("agent")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.state.join("agent.sock")
    }

    /// The log of a background agent.
    pub(super) fn log(&self) -> PathBuf {
        self.root.join("agent.log")
    }
}

/// How this agent runs: in the foreground or in the background.
pub(super) struct RunMode {
    pub(super) show: OutputMode,
    /// None in the foreground.
    pub(super) background_store: Option<BackgroundPodStore>,
    pub(super) agent_log: String,
    /// Called when the local API is served.
    pub(super) ready: Option<Arc<dyn Fn() + Send + Sync>>,
}

pub(super) fn tasks() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .context("start the task runtime")
}

/// Imports the images of the command line.
pub(super) fn import(root: &Path, images: &[String]) -> Result<()> {
    if images.is_empty() {
        return Ok(());
    }
    let store = ImageStore::open(&root.join("images"), Limits::default(), Platform::host())?;
    for wanted in images {
        let (name, path) = match wanted.split_once('=') {
            Some((name, path)) => (Some(ImageReference::parse(name)?), path),
            None => (None, wanted.as_str()),
        };
        let options = ImportOptions { name, pinned: false, preloaded: false };
        let progress = ProgressLine::new(path);
        store.import(Path::new(path), &options, &progress).with_context(|| wanted.clone())?;
    }
    Ok(())
}

/// As for a kubelet, with all files under the root. No pod here brings its own login, so image
/// access is not checked: an unfinished pull must not block an import.
fn configuration(dirs: &RunDirs, cgroup_root: &str) -> Result<NodeConfig> {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
         failSwapOn: false\nfailCgroupV1: false\ncgroupRoot: {cgroup_root}\n\
         imagePullCredentialsVerificationPolicy: NeverVerify\n\
         containerRuntimeEndpoint: unix://{}\npodLogsDir: {}\n",
        dirs.state.join("cri.sock").display(),
        dirs.root.join("logs").display(),
    );
    let files = ConfigFiles {
        config: Some(SourceFile { path: "/keelson-run".to_owned(), bytes: text.into_bytes() }),
        ..ConfigFiles::default()
    };
    let arguments = [format!("--root-dir={}", dirs.agent_root().display())];
    let loaded = node_config::load(flags::parse(&arguments), &files);
    let diagnostics: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    loaded.config.with_context(|| diagnostics.join("; "))
}

/// Runs the agent until its last pod has ended, or `leave` has; returns the exit code.
pub(super) async fn monitor_pods(
    places: &RunDirs,
    desired: DesiredPods,
    run_mode: RunMode,
    leave: impl AsyncFnOnce(DesiredPodsSender, KillNow) -> Result<u8>,
) -> Result<u8> {
    let runtime = Runtime::open(RuntimeSettings { has_agent: true, ..places.settings()? }).await?;
    let config = configuration(places, runtime.cgroup_root())?;
    if !matches!(run_mode.show, OutputMode::Nothing) {
        tokio::spawn(progress_line::show_pulls(runtime.watch_pulls()));
    }
    let transport = RuntimeTransport::in_process("the embedded runtime", runtime.routes());
    let client = Arc::new(CriClient::over(transport.clone(), transport, CallLimits::default()));
    let desired_pods: DesiredPodsSender = watch::Sender::new(desired);
    let kill_now: KillNow = watch::Sender::new(false);
    let (ended, mut exit_code_receiver) = watch::channel(None);
    let mut socket = AgentSocket::new(places.socket()).with_runtime(client.clone());
    if let Some(ready) = run_mode.ready {
        socket = socket.on_listening(ready);
    }
    // In the background the log has every event.
    let event_printer = (run_mode.show != OutputMode::Nothing).then(|| {
        Arc::new(EventPrinter { is_quiet: run_mode.show != OutputMode::Prefixed })
            as Arc<dyn EventSink>
    });
    let pod_monitor = PodMonitor {
        desired_pods: desired_pods.clone(),
        ended,
        shown: Mutex::new(Shown::default()),
        socket,
        show: run_mode.show,
        client: client.clone(),
        background_store: run_mode.background_store,
        agent_log: run_mode.agent_log,
        change_lock: Arc::default(),
    };
    // No API server, so no proxy either.
    let proxies = ProxyEnvironment::default();
    let (idle, health) = (IdleMemory::default(), Arc::default());
    let mut base = pod_dependencies(&config, &client, &idle, &proxies, &health).await?;
    // Pods from the command line are not recreated by a controller.
    base.settings.room.waits_for_terminating_pods = true;
    base.settings.reading.gates.contents_come_with_manifests = true;
    base.ports.contents = Arc::new(ManifestContents::new(desired_pods.subscribe()));
    let parts = PodDependencies {
        sources: vec![Box::new(DesiredPodsSource::new(desired_pods.subscribe()))],
        local: Some(Arc::new(pod_monitor)),
        events: event_printer,
        kill_now: kill_now.subscribe(),
        port: None,
        // Its pods come from the command line; plugins are a node's.
        plugins: None,
        ..base
    };
    let dirs = parts.ports.dirs.clone();
    let agent = node_agent::run(AgentDependencies {
        runtime: client,
        notifier: None,
        watchdog_timeout: None,
        health_endpoint: None,
        log_check: None,
        sync_frequency: Duration::ZERO,
        end_requests: Box::new(EndWhenPodsEnd(Some(exit_code_receiver.clone()))),
        pods: Some(parts),
    });
    tokio::select! {
        _ = agent => {}
        left = leave(desired_pods, kill_now) => return left,
    }
    // The agent's own garbage collection comes later than the end of its last pod.
    if exit_code_receiver.borrow().is_some() {
        for log in dirs.pod_logs().await.unwrap_or_default() {
            if let Err(error) = dirs.remove_pod_log(&log).await {
                tracing::warn!(log, err = %error, "The log of a pod that is gone stays");
            }
        }
    }
    if let Err(error) = dirs.remove_dead_links(BTreeSet::new()).await {
        tracing::warn!(err = %error, "Links to logs of pods that are gone stay");
    }
    runtime.leave().await;
    let code = exit_code_receiver.borrow_and_update().unwrap_or(1);
    Ok(code)
}

/// Ends the agent when its last pod has ended. Never asks a second time, so the agent waits for its
/// tasks.
struct EndWhenPodsEnd(Option<watch::Receiver<Option<u8>>>);

impl ShutdownRequests for EndWhenPodsEnd {
    fn next(&mut self) -> PortFuture<'_, ShutdownReason> {
        Box::pin(async move {
            let ended = match &mut self.0 {
                Some(exit_code_receiver) => {
                    exit_code_receiver.wait_for(Option::is_some).await.is_ok()
                }
                None => false,
            };
            if !ended {
                std::future::pending::<()>().await;
            }
            self.0 = None;
            ShutdownReason::PodsEnded
        })
    }
}
