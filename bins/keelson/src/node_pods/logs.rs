//! `keelson logs POD`: what a container wrote, also before a rotation, and as it goes on writing.
//!
//! Rule: the agent returns the log's path and whether its container has ended; the file is read
//! here. The container's stdout and stderr are printed to the same two streams.

use super::agent_client::AgentClient;
use super::{AgentAddress, find};
use anyhow::{Result, bail};
use clap::Args;
use container_logs::{LogEntry, LogSelection, follow, read_logs};
use pod_model::GoDuration;
use pod_model::log_line::LogStream;
use ports::ApiTime;
use ports::local_api::{LocalContainer, LocalPod};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// After an agent that did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Print what a container wrote
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  keelson logs web\n  keelson logs web -c proxy -f --tail 20\n  keelson logs web --previous --since 10m"
)]
pub(crate) struct LogsCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    pod: String,
    /// Which container, if the pod has several
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Go on with what is written from now on
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Only what is newer, for example 10m
    #[arg(long, value_name = "DURATION")]
    since: Option<GoDuration>,
    /// Of the container before the last restart
    #[arg(short, long)]
    previous: bool,
    /// Put the time before each line
    #[arg(long)]
    timestamps: bool,
}

impl LogsCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let pod = find::pod(&pods, &self.pod)?;
        let container = choose(pod, self.container.as_deref(), self.previous)?;
        let since =
            self.since.map(|ago| ApiTime::from_nanos(super::now().saturating_sub(ago.as_nanos())));
        let selection = LogSelection { tail: self.tail, since, stream: None };
        let mut output = LinePrinter { timestamps: self.timestamps, is_in_line: [false; 2] };
        let path = Path::new(&container.log_path);
        if self.follow && !self.previous {
            let ended = has_ended(&agent, &pod.uid, &container.id);
            follow(path, &selection, &mut |entry| output.take(entry), ended).await?;
        } else {
            read_logs(path, &selection, &mut |entry| output.take(entry))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Chooses the container whose log is shown.
fn choose<'a>(pod: &'a LocalPod, name: Option<&str>, previous: bool) -> Result<&'a LocalContainer> {
    let mut names: Vec<&str> = pod.object["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|container| container["name"].as_str())
        .collect();
    if names.is_empty() {
        names = pod.containers.iter().map(|container| container.name.as_str()).collect();
        names.dedup();
    }
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            bail!("{} has several containers; say -c with one of {}", pod.name, names.join(", "))
        }
    };
    // Newest first for each name. While the status has no container yet the newest one is meant;
    // `--previous` means what the status shows as the last one: in a crash loop that is the newest.
    let mut lives = pod.containers.iter().filter(|container| container.name == name);
    let life = match status_container_id(&pod.object, name, previous) {
        Some(id) => lives.find(|life| life.id == id),
        None if previous => None,
        None => lives.next(),
    };
    match (life, previous) {
        (Some(life), _) => Ok(life),
        (None, true) => bail!("there is no earlier container {name} in {}", pod.name),
        (None, false) => bail!(
            "container {name} of {} has not started; see keelson explain {}",
            pod.name,
            pod.name
        ),
    }
}

/// The container that the pod's status shows under this name, as in the kubelet's log endpoint.
pub(super) fn status_container_id<'a>(
    pod: &'a serde_json::Value,
    name: &str,
    previous: bool,
) -> Option<&'a str> {
    let status = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|status| status["name"] == name)?;
    let last = &status["lastState"]["terminated"]["containerID"];
    let id = if previous {
        last
    } else if status["state"]["running"].is_object() {
        &status["containerID"]
    } else {
        let ended = &status["state"]["terminated"]["containerID"];
        if ended.as_str().is_some_and(|id| !id.is_empty()) { ended } else { last }
    };
    let id = id.as_str()?;
    Some(id.split_once("://").map_or(id, |(_, id)| id)).filter(|id| !id.is_empty())
}

struct LinePrinter {
    timestamps: bool,
    /// Whether a line has been begun, for stdout and stderr.
    is_in_line: [bool; 2],
}

impl LinePrinter {
    fn take(&mut self, entry: &LogEntry) -> ControlFlow<()> {
        let which = usize::from(entry.stream == LogStream::Stderr);
        let mut bytes = Vec::with_capacity(entry.text.len() + 40);
        if self.timestamps && !self.is_in_line[which] {
            bytes.extend_from_slice(entry.time.as_bytes());
            bytes.push(b' ');
        }
        bytes.extend_from_slice(&entry.text);
        if !entry.is_partial {
            bytes.push(b'\n');
        }
        self.is_in_line[which] = entry.is_partial;
        let written = match entry.stream {
            LogStream::Stdout => std::io::stdout().lock().write_all(&bytes),
            LogStream::Stderr => std::io::stderr().lock().write_all(&bytes),
        };
        // A reader that closed the pipe is no error.
        if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Returns when the container has ended. While the agent does not answer, the log is followed
/// further: the agent may only be restarting.
async fn has_ended(agent: &AgentClient, uid: &str, container: &str) {
    let mut version = 0;
    loop {
        if let Ok(detail) = agent.pod(uid).await {
            let here = detail.pod.containers.iter().find(|one| one.id == container);
            if here.is_none_or(|one| one.state == "exited") {
                return;
            }
        }
        match agent.changed(version).await {
            Ok(newer) => version = newer,
            Err(_) => {
                version = 0;
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}
