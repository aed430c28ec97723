//! The agent and the embedded runtime in one process, for the pods of a command line.
//!
//! Rule: wiring only. The client of the runtime speaks to the server type itself: no socket lies
//! between. Everything of ours is under `--root` and `--state`; pods have a cgroup of their own.

use super::RunCommand;
use super::attend::{Attendant, Shown, Teller};
use super::manifest::PodManifest;
use super::source::CommandLineSource;
use crate::kubelet::pod_parts::pod_parts;
use crate::logging::{self, LogFormat, LogSettings, Verbosity};
use crate::terminal;
use anyhow::{Context, Result, bail};
use container_runtime::{Runtime, Settings};
use cri_client::{CallLimits, CriClient, Transport};
use host_process::root_lock::RootLock;
use image_store::{ImportOptions, Limits, Platform, Reference, Silent, Store};
use local_socket::LocalSocket;
use node_agent::{AgentParts, PodParts};
use node_config::{ConfigFiles, NodeConfig, SourceFile, flags};
use ports::{EndReason, EndRequests, PortFuture};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};

const WORKERS: usize = 2;
/// Disk and kernel work that may run at once.
const BLOCKING: usize = 64;

pub(super) fn run(command: &RunCommand, pods: &[PodManifest]) -> Result<ExitCode> {
    if command.verbose {
        logging::start(&LogSettings {
            format: LogFormat::Text,
            verbosity: Verbosity { level: 0, files: Vec::new() },
            split_stream: false,
        });
    }
    let agent_root = command.root.join("agent");
    std::fs::create_dir_all(&agent_root).with_context(|| agent_root.display().to_string())?;
    let lock = RootLock::acquire(&agent_root, std::process::id())
        .context("another `keelson run` uses this --root")?;
    import(command)?;
    let config = configuration(command, &agent_root)?;
    let tasks = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .context("start the task runtime")?;
    let code = tasks.block_on(attend(command, pods, &config));
    tasks.shutdown_timeout(Duration::from_secs(1));
    drop(lock);
    code.map(ExitCode::from)
}

/// Brings in the images of the command line.
fn import(command: &RunCommand) -> Result<()> {
    if command.import.is_empty() {
        return Ok(());
    }
    let folder = command.root.join("images");
    let store = Store::open(&folder, Limits::default(), Platform::host())?;
    for wanted in &command.import {
        let (name, path) = match wanted.split_once('=') {
            Some((name, path)) => (Some(Reference::parse(name)?), path),
            None => (None, wanted.as_str()),
        };
        let options = ImportOptions { name, pinned: false, preloaded: false };
        store.import(Path::new(path), &options, &Silent).with_context(|| wanted.clone())?;
    }
    Ok(())
}

/// As a kubelet would have it, with everything of it under the root.
fn configuration(command: &RunCommand, agent_root: &Path) -> Result<NodeConfig> {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
         failSwapOn: false\nfailCgroupV1: false\ncgroupRoot: /keelson\n\
         containerRuntimeEndpoint: unix://{}\npodLogsDir: {}\n",
        command.state.join("cri.sock").display(),
        command.root.join("logs").display(),
    );
    let files = ConfigFiles {
        config: Some(SourceFile { path: "/keelson-run".to_owned(), bytes: text.into_bytes() }),
        ..ConfigFiles::default()
    };
    let arguments = [format!("--root-dir={}", agent_root.display())];
    let loaded = node_config::load(flags::parse(&arguments), &files);
    let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    loaded.config.with_context(|| problems.join("; "))
}

async fn attend(command: &RunCommand, pods: &[PodManifest], config: &NodeConfig) -> Result<u8> {
    let mut settings = Settings::new(command.root.clone(), command.state.clone());
    crate::supervisor_program::choose(&mut settings);
    let runtime = Runtime::open(settings).await?;
    let transport = Transport::in_process("the embedded runtime", runtime.routes());
    let client = Arc::new(CriClient::over(transport.clone(), transport, CallLimits::default()));
    let (wanted, is_wanted) = watch::channel(true);
    let (ended, mut how) = watch::channel(None);
    let attendant = Attendant {
        wanted: wanted.clone(),
        ended,
        shown: Mutex::new(Shown::default()),
        socket: LocalSocket::new(command.state.join("agent.sock")),
    };
    let parts = PodParts {
        sources: vec![Box::new(CommandLineSource::new(pods, is_wanted))],
        local: Some(Arc::new(attendant)),
        events: Some(Arc::new(Teller)),
        ..pod_parts(config, &client).await?
    };
    let agent = node_agent::run(AgentParts {
        runtime: client,
        supervisor: None,
        watchdog_time: None,
        health_endpoint: None,
        end_requests: Box::new(WhenEnded(Some(how.clone()))),
        pods: Some(parts),
    });
    tokio::select! {
        _ = agent => {}
        left = leave(wanted) => return left,
    }
    let code = how.borrow_and_update().unwrap_or(1);
    Ok(code)
}

/// The first signal ends the pods, the second this program alone.
async fn leave(wanted: watch::Sender<bool>) -> Result<u8> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut asked = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    asked().await;
    terminal::print_error("ending the pods; once more to leave them as they are");
    wanted.send_replace(false);
    asked().await;
    bail!("left; the pods are ended by the next `keelson run` with the same --root")
}

/// The agent ends when its pods have. There is no second request.
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
