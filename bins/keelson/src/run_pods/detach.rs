//! `keelson run --detach`: hands pods to the background agent of a root, which it starts first if
//! there is none.
//!
//! Rule: concurrent calls start one agent. If the agent is ending, the call waits for its end and
//! hands the pods to the next one. A start that fails is reported with the agent's own message and
//! its log's path; so is a runtime configuration that a running agent cannot use.

use super::ENDING;
use super::background::READY;
use super::background_store::BackgroundPodStore;
use super::compose::RunDirs;
use super::contents;
use super::leftover_pods;
use super::manifest::PodManifest;
use crate::node_pods::{AgentClient, NoAgentError};
use crate::terminal;
use anyhow::{Context, Result, bail};
use ports::local_api::{LocalAcceptedPods, LocalManifest, LocalManifests};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// An agent adopts its pods before it answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const END_TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS: usize = 4;
/// A longer log is moved aside when an agent starts.
const MAX_LOG_BYTES: u64 = 8 << 20;
const MAX_MESSAGE_BYTES: u64 = 16 * 1024;

pub(super) async fn run(dirs: &RunDirs, pods: &[PodManifest]) -> Result<()> {
    let manifests = LocalManifests { manifests: pods.iter().map(manifest).collect() };
    let leftovers = find_leftover_pods(dirs, pods).await?;
    let accepted = hand_over(dirs, &manifests).await?;
    for pod in &leftovers {
        terminal::print_error(&leftover_pods::notice(pod));
    }
    for pod in &accepted.pods {
        let effect = match pod.outcome.as_str() {
            "same" => "is unchanged",
            "changed" => "is replaced",
            "updated" => "gets its new ConfigMaps and Secrets while it runs",
            _ => "runs in the background",
        };
        terminal::print(&format!("{}/{} {effect}\n", pod.namespace, pod.name));
    }
    if accepted.pods.is_empty() {
        terminal::print("the background agent has its pods\n");
    }
    terminal::print_error(&format!("agent's log: {}", dirs.log().display()));
    Ok(())
}

/// Pods left by an agent that is gone. Pods that end while an agent runs do not count.
async fn find_leftover_pods(dirs: &RunDirs, pods: &[PodManifest]) -> Result<BTreeSet<String>> {
    let answer = AgentClient::at(&dirs.socket()).pods().await;
    if !answer.is_err_and(|error| error.is::<NoAgentError>()) {
        return Ok(BTreeSet::new());
    }
    let stored_pods = BackgroundPodStore::below(&dirs.agent_root()).load().await?;
    let wanted = pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    leftover_pods::below(&dirs.agent_root(), wanted, &stored_pods).await
}

/// A manifest with its location as an absolute path: the agent has another working directory.
fn manifest(pod: &PodManifest) -> LocalManifest {
    let (file, line) = pod.location.rsplit_once(':').unwrap_or((&pod.location, ""));
    let location = match std::path::absolute(file) {
        Ok(path) if path.is_file() => format!("{}:{line}", path.display()),
        _ => pod.location.clone(),
    };
    LocalManifest {
        location: location.trim_end_matches(':').to_owned(),
        text: contents::as_one_text(pod),
    }
}

async fn hand_over(dirs: &RunDirs, manifests: &LocalManifests) -> Result<LocalAcceptedPods> {
    let agent = AgentClient::at(&dirs.socket());
    let mut started = false;
    for _ in 0..ATTEMPTS {
        let error = match agent.take(manifests).await {
            Ok(accepted) => {
                if !started && let Some(file) = &dirs.runtime_config {
                    terminal::print_error(&format!(
                        "{} has no effect: the background agent is running already; it takes \
                         effect when the agent is restarted",
                        file.display()
                    ));
                }
                return Ok(accepted);
            }
            Err(error) => error,
        };
        if error.is::<NoAgentError>() {
            // Held until the agent answers: other starters wait here and then find it.
            let _start_lock = lock_start(&dirs.root)?;
            if agent.pods().await.is_err_and(|error| error.is::<NoAgentError>()) {
                start(dirs)?;
                started = true;
            }
        } else if error.to_string() == ENDING {
            // No change is newer than this one: the request ends when the agent exits.
            let gone = agent.changed(u64::MAX - 1);
            let _ = tokio::time::timeout(END_TIMEOUT, gone).await;
        } else {
            return Err(error);
        }
    }
    bail!(
        "the background agent exited {ATTEMPTS} times before it took the pods; see {}",
        dirs.log().display()
    )
}

fn lock_start(root: &Path) -> Result<File> {
    fs::create_dir_all(root).with_context(|| root.display().to_string())?;
    let path = root.join("start.lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = open.with_context(|| path.display().to_string())?;
    flock(&file, FlockOperation::LockExclusive).with_context(|| path.display().to_string())?;
    Ok(file)
}

/// Starts the agent and waits until it is ready.
fn start(dirs: &RunDirs) -> Result<()> {
    let log = open_log(&dirs.log())?;
    let (own_end, agent_end) = UnixStream::pair().context("create a socket to the agent")?;
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(own);
    command.arg("run-agent").arg("--root").arg(&dirs.root).arg("--state").arg(&dirs.state);
    if let Some(file) = &dirs.runtime_config {
        command.arg("--runtime-config").arg(file);
    }
    let child = command
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(agent_end)))
        .stdout(log.try_clone().context("the agent's log")?)
        .stderr(log)
        .spawn()
        .context("start the background agent")?;
    // Not waited for: this program exits first.
    drop(child);
    own_end.set_read_timeout(Some(START_TIMEOUT)).context("wait for the agent")?;
    let message = read_startup_message(&own_end);
    if message == READY {
        return Ok(());
    }
    let reason = if message.is_empty() { "it sent no error" } else { message.trim() };
    bail!("the background agent did not start: {reason}; its log is {}", dirs.log().display())
}

/// The agent's first message: `READY`, or the error that it sends before it exits.
fn read_startup_message(socket: &UnixStream) -> String {
    let mut message = Vec::new();
    let mut part = [0; 1024];
    let mut reader = socket.take(MAX_MESSAGE_BYTES);
    loop {
        match reader.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(read) => message.extend_from_slice(&part[..read]),
        }
        if message == READY.as_bytes() {
            break;
        }
    }
    String::from_utf8_lossy(&message).into_owned()
}

fn open_log(path: &Path) -> Result<File> {
    let shown = || format!("the agent's log {}", path.display());
    if fs::metadata(path).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        fs::rename(path, path.with_extension("log.1")).with_context(shown)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).with_context(shown)
}
