//! `keelson run --detach`: hands pods to the background agent of a root, which it starts first if
//! there is none.
//!
//! Rule: two concurrent starts start one agent. An agent that is ending is waited for, and the next
//! one takes the pods. A start that fails is reported with the agent's own message and its log's
//! path; so is a runtime configuration that a running agent cannot use.

use super::ENDING;
use super::background::READY;
use super::background_store::BackgroundPodStore;
use super::compose::RunDirs;
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
    let leftover_pods = left_pods(dirs, pods).await?;
    let taken = hand_over(dirs, &manifests).await?;
    for pod in &leftover_pods {
        terminal::print_error(&leftover_pods::notice(pod));
    }
    for pod in &taken.pods {
        let what = match pod.outcome.as_str() {
            "same" => "is wanted like this already",
            "changed" => "is replaced",
            _ => "runs in the background",
        };
        terminal::print(&format!("{}/{} {what}\n", pod.namespace, pod.name));
    }
    if taken.pods.is_empty() {
        terminal::print("the background agent has its pods\n");
    }
    terminal::print_error(&format!("agent's log: {}", dirs.log().display()));
    Ok(())
}

/// Pods left by an agent that is gone. Pods that end while an agent runs do not count.
async fn left_pods(dirs: &RunDirs, pods: &[PodManifest]) -> Result<BTreeSet<String>> {
    let asked = AgentClient::at(&dirs.socket()).pods().await;
    if !asked.is_err_and(|error| error.is::<NoAgentError>()) {
        return Ok(BTreeSet::new());
    }
    let background_store = BackgroundPodStore::below(&dirs.agent_root()).load().await?;
    let wanted = pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    leftover_pods::below(&dirs.agent_root(), wanted, &background_store).await
}

/// A pod's manifest is named by its absolute path: the agent has another working directory.
fn manifest(pod: &PodManifest) -> LocalManifest {
    let (file, line) = pod.location.rsplit_once(':').unwrap_or((&pod.location, ""));
    let location = match std::path::absolute(file) {
        Ok(path) if path.is_file() => format!("{}:{line}", path.display()),
        _ => pod.location.clone(),
    };
    LocalManifest {
        location: location.trim_end_matches(':').to_owned(),
        text: pod.text.to_string(),
    }
}

async fn hand_over(dirs: &RunDirs, manifests: &LocalManifests) -> Result<LocalAcceptedPods> {
    let agent = AgentClient::at(&dirs.socket());
    let mut started = false;
    for _ in 0..ATTEMPTS {
        let refused = match agent.take(manifests).await {
            Ok(taken) => {
                if !started && let Some(file) = &dirs.runtime_config {
                    terminal::print_error(&format!(
                        "{} is not in force: the background agent ran already; it counts when the \
                         agent is started anew",
                        file.display()
                    ));
                }
                return Ok(taken);
            }
            Err(refused) => refused,
        };
        if refused.is::<NoAgentError>() {
            // Held until the agent answers: other starters wait here and then find it.
            let _alone = lock_start(&dirs.root)?;
            if agent.pods().await.is_err_and(|error| error.is::<NoAgentError>()) {
                start(dirs)?;
                started = true;
            }
        } else if refused.to_string() == ENDING {
            // This request is never answered; it ends with the agent.
            let gone = agent.changed(u64::MAX - 1);
            let _ = tokio::time::timeout(END_TIMEOUT, gone).await;
        } else {
            return Err(refused);
        }
    }
    bail!("the background agent went away {ATTEMPTS} times; see {}", dirs.log().display())
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
    let (ours, theirs) = UnixStream::pair().context("a socket to the agent")?;
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(own);
    command.arg("run-agent").arg("--root").arg(&dirs.root).arg("--state").arg(&dirs.state);
    if let Some(file) = &dirs.runtime_config {
        command.arg("--runtime-config").arg(file);
    }
    let child = command
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(log.try_clone().context("the agent's log")?)
        .stderr(log)
        .spawn()
        .context("start the background agent")?;
    // Not waited for: this program exits first.
    drop(child);
    ours.set_read_timeout(Some(START_TIMEOUT)).context("wait for the agent")?;
    let message = read_startup_message(&ours);
    if message == READY {
        return Ok(());
    }
    let why = if message.is_empty() { "it reported nothing" } else { message.trim() };
    bail!("the background agent did not start: {why}; its log is {}", dirs.log().display())
}

/// The agent's first message: that it is ready, or everything it writes before its exit.
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
