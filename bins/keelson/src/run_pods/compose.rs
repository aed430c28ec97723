//! The agent and the embedded runtime in one process, for pods from the command line.
//!
//! Rule: wiring only. The runtime's client calls the server type directly, without a socket. All
//! files are under `--root` and `--state`; pods have a cgroup of this root's own.

use super::attend::{Attendant, Shown};
use super::household::{Household, Wish};
use super::kept::KeptPods;
use super::show::{Show, Teller};
use super::source::HouseholdSource;
use crate::kubelet::pod_parts::pod_parts;
use crate::progress_line::{self, ProgressLine};
use crate::rest::Rest;
use anyhow::{Context, Result};
use container_runtime::{Runtime, Settings};
use cri_client::{CallLimits, CriClient, Transport};
use image_store::{ImportOptions, Limits, Platform, Reference, Store};
use local_socket::LocalSocket;
use node_agent::{AgentParts, PodParts};
use node_config::{ConfigFiles, NodeConfig, SourceFile, flags};
use ports::{EndReason, EndRequests, EventSink, PortFuture};
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
pub(super) struct Places {
    pub(super) root: PathBuf,
    pub(super) state: PathBuf,
    /// Settings of the embedded runtime.
    pub(super) runtime_config: Option<PathBuf>,
}

impl Places {
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
    pub(super) fn settings(&self) -> Result<Settings> {
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
pub(super) struct Manner {
    pub(super) show: Show,
    /// None in the foreground.
    pub(super) kept: Option<KeptPods>,
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
    let store = Store::open(&root.join("images"), Limits::default(), Platform::host())?;
    for wanted in images {
        let (name, path) = match wanted.split_once('=') {
            Some((name, path)) => (Some(Reference::parse(name)?), path),
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
fn configuration(places: &Places, cgroup_root: &str) -> Result<NodeConfig> {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
         failSwapOn: false\nfailCgroupV1: false\ncgroupRoot: {cgroup_root}\n\
         imagePullCredentialsVerificationPolicy: NeverVerify\n\
         containerRuntimeEndpoint: unix://{}\npodLogsDir: {}\n",
        places.state.join("cri.sock").display(),
        places.root.join("logs").display(),
    );
    let files = ConfigFiles {
        config: Some(SourceFile { path: "/keelson-run".to_owned(), bytes: text.into_bytes() }),
        ..ConfigFiles::default()
    };
    let arguments = [format!("--root-dir={}", places.agent_root().display())];
    let loaded = node_config::load(flags::parse(&arguments), &files);
    let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    loaded.config.with_context(|| problems.join("; "))
}

/// Runs the agent until its last pod has ended, or `leave` has; returns the exit code.
pub(super) async fn attend(
    places: &Places,
    wish: Wish,
    manner: Manner,
    leave: impl AsyncFnOnce(Household, KillNow) -> Result<u8>,
) -> Result<u8> {
    let runtime = Runtime::open(Settings { has_agent: true, ..places.settings()? }).await?;
    let config = configuration(places, runtime.cgroup_root())?;
    if !matches!(manner.show, Show::Nothing) {
        tokio::spawn(progress_line::show_pulls(runtime.watch_pulls()));
    }
    let transport = Transport::in_process("the embedded runtime", runtime.routes());
    let client = Arc::new(CriClient::over(transport.clone(), transport, CallLimits::default()));
    let household: Household = watch::Sender::new(wish);
    let kill_now: KillNow = watch::Sender::new(false);
    let (ended, mut how) = watch::channel(None);
    let mut socket = LocalSocket::new(places.socket()).with_runtime(client.clone());
    if let Some(ready) = manner.ready {
        socket = socket.when_listening(ready);
    }
    // In the background the log has every event.
    let teller = (manner.show != Show::Nothing).then(|| {
        Arc::new(Teller { is_quiet: manner.show != Show::Prefixed }) as Arc<dyn EventSink>
    });
    let attendant = Attendant {
        household: household.clone(),
        ended,
        shown: Mutex::new(Shown::default()),
        socket,
        show: manner.show,
        client: client.clone(),
        kept: manner.kept,
        agent_log: manner.agent_log,
        changing: Arc::default(),
    };
    let mut base = pod_parts(&config, &client, &Rest::default()).await?;
    // Pods from the command line are not recreated by a controller.
    base.settings.room.waits_for_ending = true;
    let parts = PodParts {
        sources: vec![Box::new(HouseholdSource::new(household.subscribe()))],
        local: Some(Arc::new(attendant)),
        events: teller,
        kill_now: kill_now.subscribe(),
        port: None,
        ..base
    };
    let folders = parts.ports.folders.clone();
    let agent = node_agent::run(AgentParts {
        runtime: client,
        supervisor: None,
        watchdog_time: None,
        health_endpoint: None,
        log_check: None,
        sync_frequency: Duration::ZERO,
        end_requests: Box::new(WhenEnded(Some(how.clone()))),
        pods: Some(parts),
    });
    tokio::select! {
        _ = agent => {}
        left = leave(household, kill_now) => return left,
    }
    // The agent's own garbage collection comes later than the end of its last pod.
    if let Err(error) = folders.remove_dead_links(BTreeSet::new()).await {
        tracing::warn!(err = %error, "Links to logs of pods that are gone stay");
    }
    runtime.leave().await;
    let code = how.borrow_and_update().unwrap_or(1);
    Ok(code)
}

/// Ends the agent when its last pod has ended. Never asks a second time, so the agent waits for its
/// tasks.
struct WhenEnded(Option<watch::Receiver<Option<u8>>>);

impl EndRequests for WhenEnded {
    fn next(&mut self) -> PortFuture<'_, EndReason> {
        Box::pin(async move {
            let ended = match &mut self.0 {
                Some(how) => how.wait_for(Option::is_some).await.is_ok(),
                None => false,
            };
            if !ended {
                std::future::pending::<()>().await;
            }
            self.0 = None;
            EndReason::Signal("the end of its pods")
        })
    }
}
