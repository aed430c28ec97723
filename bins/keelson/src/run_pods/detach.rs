//! `keelson run --detach`: hands pods to the background agent of a root, which it starts first if
//! there is none.
//!
//! Rule: two concurrent starts start one agent. An agent that is ending is waited for, and the next
//! one takes the pods. A start that fails is reported with the agent's own message and its log's
//! path; so is a runtime configuration that a running agent cannot use.

use super::ENDING;
use super::background::READY;
use super::compose::Places;
use super::kept::KeptPods;
use super::left;
use super::manifest::PodManifest;
use crate::node_pods::{Agent, NoAgent};
use crate::terminal;
use anyhow::{Context, Result, bail};
use ports::local_api::{LocalManifest, LocalManifests, LocalTaken};
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
const LONGEST_START: Duration = Duration::from_secs(60);
const LONGEST_END: Duration = Duration::from_secs(30);
const ATTEMPTS: usize = 4;
/// A longer log is moved aside when an agent starts.
const LONGEST_LOG: u64 = 8 << 20;
const LONGEST_WORDS: u64 = 16 * 1024;

pub(super) async fn run(places: &Places, pods: &[PodManifest]) -> Result<()> {
    let manifests = LocalManifests { manifests: pods.iter().map(manifest).collect() };
    let left = left_pods(places, pods).await?;
    let taken = hand_over(places, &manifests).await?;
    for pod in &left {
        terminal::print_error(&left::notice(pod));
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
    terminal::print_error(&format!("agent's log: {}", places.log().display()));
    Ok(())
}

/// Pods left by an agent that is gone. Pods that end while an agent runs do not count.
async fn left_pods(places: &Places, pods: &[PodManifest]) -> Result<BTreeSet<String>> {
    let asked = Agent::at(&places.socket()).pods().await;
    if !asked.is_err_and(|error| error.is::<NoAgent>()) {
        return Ok(BTreeSet::new());
    }
    let kept = KeptPods::below(&places.agent_root()).load().await?;
    let wanted = pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    left::below(&places.agent_root(), wanted, &kept).await
}

/// A pod's manifest is named by its absolute path: the agent has another working directory.
fn manifest(pod: &PodManifest) -> LocalManifest {
    let (file, line) = pod.place.rsplit_once(':').unwrap_or((&pod.place, ""));
    let place = match std::path::absolute(file) {
        Ok(path) if path.is_file() => format!("{}:{line}", path.display()),
        _ => pod.place.clone(),
    };
    LocalManifest { place: place.trim_end_matches(':').to_owned(), text: pod.text.to_string() }
}

async fn hand_over(places: &Places, manifests: &LocalManifests) -> Result<LocalTaken> {
    let agent = Agent::at(&places.socket());
    let mut started = false;
    for _ in 0..ATTEMPTS {
        let refused = match agent.take(manifests).await {
            Ok(taken) => {
                if !started && let Some(file) = &places.runtime_config {
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
        if refused.is::<NoAgent>() {
            // Held until the agent answers: other starters wait here and then find it.
            let _alone = only_starter(&places.root)?;
            if agent.pods().await.is_err_and(|error| error.is::<NoAgent>()) {
                start(places)?;
                started = true;
            }
        } else if refused.to_string() == ENDING {
            // This request is never answered; it ends with the agent.
            let gone = agent.changed(u64::MAX - 1);
            let _ = tokio::time::timeout(LONGEST_END, gone).await;
        } else {
            return Err(refused);
        }
    }
    bail!("the background agent went away {ATTEMPTS} times; see {}", places.log().display())
}

fn only_starter(root: &Path) -> Result<File> {
    fs::create_dir_all(root).with_context(|| root.display().to_string())?;
    let path = root.join("start.lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = open.with_context(|| path.display().to_string())?;
    flock(&file, FlockOperation::LockExclusive).with_context(|| path.display().to_string())?;
    Ok(file)
}

/// Starts the agent and waits until it is ready.
fn start(places: &Places) -> Result<()> {
    let log = open_log(&places.log())?;
    let (ours, theirs) = UnixStream::pair().context("a socket to the agent")?;
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(own);
    command.arg("run-agent").arg("--root").arg(&places.root).arg("--state").arg(&places.state);
    if let Some(file) = &places.runtime_config {
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
    ours.set_read_timeout(Some(LONGEST_START)).context("wait for the agent")?;
    let said = heard(&ours);
    if said == READY {
        return Ok(());
    }
    let why = if said.is_empty() { "it reported nothing" } else { said.trim() };
    bail!("the background agent did not start: {why}; its log is {}", places.log().display())
}

/// The agent's first message: that it is ready, or everything it writes before its exit.
fn heard(socket: &UnixStream) -> String {
    let mut said = Vec::new();
    let mut part = [0; 1024];
    let mut reader = socket.take(LONGEST_WORDS);
    loop {
        match reader.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(read) => said.extend_from_slice(&part[..read]),
        }
        if said == READY.as_bytes() {
            break;
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn open_log(path: &Path) -> Result<File> {
    let shown = || format!("the agent's log {}", path.display());
    if fs::metadata(path).is_ok_and(|found| found.len() > LONGEST_LOG) {
        fs::rename(path, path.with_extension("log.1")).with_context(shown)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).with_context(shown)
}
