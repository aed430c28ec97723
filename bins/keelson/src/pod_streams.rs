//! The verbs that open streams into pods: exec, attach, port-forward.
//!
//! Rule: the bytes go directly between this program and the runtime: on the connection to the agent
//! if the runtime is in its process and accepts it, otherwise at an address that works once. A
//! command's exit code becomes this program's. Every error is one line that names the next step.

mod choose;
mod command;
mod forward;
mod local_io;
mod port_pair;
mod raw_terminal;
mod session_end;
mod spdy_link;
mod stream;

use crate::node_pods::{AgentAddress, AgentClient, find_pod};
use anyhow::{Result, bail};
use clap::Args;
use port_pair::PortPair;
use std::net::IpAddr;
use std::process::ExitCode;

pub(crate) use choose::running;
pub(crate) use command::{SessionStreams, join};
pub(crate) use stream::PodStream;

/// Run a command in a container
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keelson exec web -- cat /etc/hostname
  keelson exec -it web -c proxy -- sh
  tar c . | keelson exec -i web -- tar x -C /srv

The exit code is the command's; 126 where it could not be run.")]
pub(crate) struct ExecCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,
    /// Which container, if the pod has several
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    pod: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ExecCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let pod = find_pod(&pods, &self.pod)?;
        let container = running(pod, self.container.as_deref())?;
        let session_streams =
            SessionStreams { stdin: self.stdin, stdout: true, stderr: !self.tty, tty: self.tty };
        let wanted = session_streams.command(self.command);
        let stream = agent.exec(&container.id, &wanted).await?;
        Ok(join(stream, session_streams).await?.session_end.report())
    }
}

/// Join a container: see what it writes, and write to it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keelson attach web
  keelson attach -it shell

Only what is written from now on is shown; `keelson logs` has the rest.")]
pub(crate) struct AttachCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Use the container's terminal
    #[arg(short, long)]
    tty: bool,
    /// Which container, if the pod has several
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    pod: String,
}

impl AttachCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let pod = find_pod(&pods, &self.pod)?;
        let container = running(pod, self.container.as_deref())?;
        let declared_streams = choose::declared_streams(pod, &container.name);
        if self.stdin && !declared_streams.stdin {
            bail!(
                "container {} has no standard input (stdin: true in its manifest)",
                container.name
            );
        }
        if self.tty && !declared_streams.tty {
            bail!("container {} has no terminal (tty: true in its manifest)", container.name);
        }
        // A container's terminal carries both streams, whether this side has one or not.
        let session_streams = SessionStreams {
            stdin: self.stdin,
            stdout: true,
            stderr: !declared_streams.tty,
            tty: declared_streams.tty,
        };
        let stream = agent.attach(&container.id, &session_streams.command(Vec::new())).await?;
        Ok(join(stream, session_streams).await?.session_end.report())
    }
}

/// Make ports of a pod answer on this machine
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keelson port-forward web 8080:80
  keelson port-forward web 80 :443          a free local port for the second
  keelson port-forward --address 0.0.0.0 web 8080:80")]
pub(crate) struct PortForwardCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// Local addresses to listen on
    #[arg(long = "address", value_name = "IP", default_values = ["127.0.0.1", "::1"])]
    listen: Vec<IpAddr>,
    /// NAME, NAMESPACE/NAME or the beginning of a UID
    pod: String,
    /// LOCAL:REMOTE, or one number for both; no LOCAL for a free port
    #[arg(required = true, value_name = "PORTS")]
    ports: Vec<PortPair>,
}

impl PortForwardCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let pod = find_pod(&pods, &self.pod)?;
        forward::serve(&agent, &pod.uid, &self.listen, &self.ports).await?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests;
