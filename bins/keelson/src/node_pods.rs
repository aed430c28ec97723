//! The verbs that query the agent on this machine about its pods: ps, logs, explain, timeline,
//! stop, top, images, plugins.
//!
//! Rule: one request over the local socket, one answer shown; every error is one line that names
//! the next step. Nothing is decided here: the agent explains why a pod waits.

mod agent_client;
mod explain;
mod find;
mod images;
mod list;
mod logs;
mod plugins;
mod timeline;
mod top;
mod yaml;

use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use agent_client::{AgentClient, NoAgentError};
pub(crate) use find::pod as find_pod;
pub(crate) use images::ImagesCommand;
pub(crate) use logs::LogsCommand;
pub(crate) use plugins::PluginsCommand;
pub(crate) use top::TopCommand;

/// The agent's local API socket.
pub(crate) const SOCKET: &str = "/run/keelson/agent.sock";

#[derive(Debug, Args)]
pub(crate) struct AgentAddress {
    /// The agent's local socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PodFormat {
    Table,
    Wide,
    Json,
    Yaml,
}

/// List the pods on this machine
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  keelson ps\n  keelson ps -o wide\n  keelson ps -o json")]
pub(crate) struct PsCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t = PodFormat::Table)]
    output: PodFormat,
}

/// Say why a pod is not where it should be, and what to do next
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  keelson explain web\n  keelson explain kube-system/etcd-node1\n  \
                  keelson explain web -o json"
)]
pub(crate) struct ExplainCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    pod: String,
    /// How to print it; wide has all events that are known
    #[arg(short, long, value_enum, default_value_t = PodFormat::Table)]
    output: PodFormat,
}

/// Show where the time of a pod's start went
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  keelson timeline web\n  keelson timeline web -o json")]
pub(crate) struct TimelineCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    pod: String,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = PodFormat::Table)]
    output: PodFormat,
}

/// End a pod (of a manifest's pod it says which file to remove)
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  keelson stop web\n  keelson stop --no-wait web")]
pub(crate) struct StopCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    #[arg(required = true, value_name = "POD")]
    pods: Vec<String>,
    /// Return when the end has begun, not when the pod is gone
    #[arg(long)]
    no_wait: bool,
}

impl PsCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let pods = AgentClient::at(&self.address.socket).pods().await?;
        crate::terminal::print(&match self.output {
            PodFormat::Table => list::table(&pods, now(), false),
            PodFormat::Wide => list::table(&pods, now(), true),
            PodFormat::Json => list::as_list(&pods, json)?,
            PodFormat::Yaml => list::as_list(&pods, |value| Ok(yaml::write(value)))?,
        });
        for warning in &pods.node.source_errors {
            crate::terminal::print_error(&format!("warning: {warning}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ExplainCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let pod = find::pod(&pods, &self.pod)?;
        let detail = agent.pod(&pod.uid).await?;
        crate::terminal::print(&match self.output {
            PodFormat::Table => explain::text(&detail, &pods.node, now(), false),
            PodFormat::Wide => explain::text(&detail, &pods.node, now(), true),
            PodFormat::Json => json(&explain::value(&detail, &pods.node)?)?,
            PodFormat::Yaml => yaml::write(&explain::value(&detail, &pods.node)?),
        });
        Ok(ExitCode::SUCCESS)
    }
}

impl TimelineCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let pod = find::pod(&pods, &self.pod)?;
        let detail = agent.pod(&pod.uid).await?;
        crate::terminal::print(&match self.output {
            PodFormat::Table | PodFormat::Wide => timeline::table(&detail),
            PodFormat::Json => json(&serde_json::to_value(&detail.marks)?)?,
            PodFormat::Yaml => yaml::write(&serde_json::to_value(&detail.marks)?),
        });
        Ok(ExitCode::SUCCESS)
    }
}

impl StopCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let meant: Result<Vec<_>> =
            self.pods.iter().map(|wanted| find::pod(&pods, wanted)).collect();
        let meant = meant?;
        for pod in &meant {
            agent.stop(&pod.uid).await?;
        }
        for pod in &meant {
            if self.no_wait {
                crate::terminal::print(&format!("{}/{} is ending\n", pod.namespace, pod.name));
            } else {
                until_gone(&agent, &pod.uid).await?;
                crate::terminal::print(&format!("{}/{} has ended\n", pod.namespace, pod.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Delay after a failed request for changes: the agent ends, or too many clients wait.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Consecutive connections that may break off.
const BROKEN_ANSWERS: u32 = 3;

/// Returns when the agent no longer has the pod, or is gone itself: it exits with its last pod.
async fn until_gone(agent: &AgentClient, uid: &str) -> Result<()> {
    let (mut version, mut broken) = (0, 0);
    loop {
        match agent.pods().await {
            Ok(pods) if pods.pods.iter().all(|pod| pod.uid != uid) => return Ok(()),
            Ok(_) => broken = 0,
            Err(error) if error.is::<NoAgentError>() => return Ok(()),
            // An agent that exits drops its waiting clients; the next request finds no agent.
            Err(error) if broken == BROKEN_ANSWERS => return Err(error),
            Err(_) => broken += 1,
        }
        version = match agent.changed(version).await {
            Ok(newer) => newer,
            Err(_) => {
                tokio::time::sleep(ASK_AGAIN).await;
                0
            }
        };
    }
}

fn json(value: &serde_json::Value) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Nanoseconds since the epoch.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
