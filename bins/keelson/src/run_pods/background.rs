//! The agent of `run --detach`: the pods of one root, until the last has ended.
//!
//! Rule: it has no terminal; its messages go to its log. The process that started it reads on the
//! socket at standard input that it is ready, or the error. SIGTERM and SIGINT end it alone: its
//! pods go on, and the next agent adopts them.

use super::compose::{self, KillNow, Manner, Places};
use super::foreground::{lock, start_log};
use super::household::{Household, Wish};
use super::kept::KeptPods;
use super::show::Show;
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
            tell(&format!("{error:#}\n"));
            terminal::print_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        })
    }

    fn serve(&self) -> Result<ExitCode> {
        // Its own session: closing the terminal that it was started from does not end it. A process
        // that leads a session already (a service) stays in it.
        let _ = rustix::process::setsid();
        start_log();
        let mut places = Places::new(&self.root, &self.state, self.runtime_config.as_deref())?;
        let lock = lock(&places)?;
        let tasks = compose::tasks()?;
        let kept = KeptPods::below(&places.agent_root());
        let pods = tasks.block_on(kept.load())?;
        places.runtime_config = kept.runtime_config(places.runtime_config.as_deref(), &pods)?;
        info!(pods = pods.len(), root = %places.root.display(), "Background agent starts");
        let manner = Manner {
            show: Show::Nothing,
            kept: Some(kept),
            agent_log: places.log().display().to_string(),
            ready: Some(Arc::new(|| tell(READY))),
        };
        let ended = tasks.block_on(compose::attend(&places, Wish::of(pods), manner, leave));
        tasks.shutdown_timeout(Duration::from_secs(1));
        info!("Background agent has ended");
        drop(lock);
        ended.map(|_| ExitCode::SUCCESS)
    }
}

/// Sends a text to the process that started it, which may be gone.
fn tell(words: &str) {
    let _ = rustix::net::send(
        std::io::stdin(),
        words.as_bytes(),
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
    );
}

/// Ends the agent alone.
async fn leave(_: Household, _: KillNow) -> Result<u8> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::select! {
        _ = interrupt.recv() => info!("SIGINT: ending; pods go on"),
        _ = terminate.recv() => info!("SIGTERM: ending; pods go on"),
    }
    Ok(0)
}
