//! The agent of `run --detach`: runs the pods of one root until the last one has ended.
//!
//! Rule: the agent has no terminal; it logs to its file. Its standard input is a socket, on which
//! the process that started it reads that it is ready, or the error. SIGTERM and SIGINT end only
//! the agent: its pods keep running, and the next agent adopts them.

use super::background_store::BackgroundPodStore;
use super::compose::{self, KillNow, RunDirs, RunMode};
use super::desired_pods::{DesiredPods, DesiredPodsSender};
use super::foreground::{lock, start_log};
use super::show::OutputMode;
use crate::terminal;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// Sent to the parent when the agent is ready.
pub(super) const READY: &str = "ready\n";

/// The background agent of `run --detach`; not for people
#[derive(Debug, Args)]
pub(crate) struct RunAgentCommand {
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    state: PathBuf,
    #[arg(long)]
    runtime_config: Option<PathBuf>,
}

impl RunAgentCommand {
    pub(crate) fn run(self) -> ExitCode {
        self.serve().unwrap_or_else(|error| {
            notify_starter(&format!("{error:#}\n"));
            terminal::print_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        })
    }

    fn serve(&self) -> Result<ExitCode> {
        // Its own session: closing the terminal that it was started from does not end it. A process
        // that leads a session already (a service) stays in it.
        let _ = rustix::process::setsid();
        start_log();
        let mut dirs = RunDirs::new(&self.root, &self.state, self.runtime_config.as_deref())?;
        let lock = lock(&dirs)?;
        let tasks = compose::tasks()?;
        let background_store = BackgroundPodStore::below(&dirs.agent_root());
        let pods = tasks.block_on(background_store.load())?;
        dirs.runtime_config =
            background_store.runtime_config(dirs.runtime_config.as_deref(), &pods)?;
        info!(pods = pods.len(), root = %dirs.root.display(), "Background agent starts");
        let run_mode = RunMode {
            show: OutputMode::Nothing,
            background_store: Some(background_store),
            agent_log: dirs.log().display().to_string(),
            ready: Some(Arc::new(|| notify_starter(READY))),
        };
        let outcome = tasks.block_on(compose::monitor_pods(
            &dirs,
            DesiredPods::of(pods),
            run_mode,
            wait_for_signal,
        ));
        tasks.shutdown_timeout(Duration::from_secs(1));
        info!("Background agent has ended");
        drop(lock);
        outcome.map(|_| ExitCode::SUCCESS)
    }
}

/// Sends a message to the process that started this agent, which may have exited.
fn notify_starter(message: &str) {
    let _ = rustix::net::send(
        std::io::stdin(),
        message.as_bytes(),
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
    );
}

/// Waits for SIGINT or SIGTERM, which end the agent and leave its pods running.
async fn wait_for_signal(_: DesiredPodsSender, _: KillNow) -> Result<u8> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::select! {
        _ = interrupt.recv() => info!("SIGINT: ending; pods keep running"),
        _ = terminate.recv() => info!("SIGTERM: ending; pods keep running"),
    }
    Ok(0)
}
