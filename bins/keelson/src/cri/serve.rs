//! `keelson cri`: opens the runtime and serves it until a signal comes.

use anyhow::{Context, Result};
use container_runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

use super::CriCommand;
use crate::idle_memory::{ChangeCounter, IdleMemory};
use crate::logging::{self, LogFormat, LogSettings, Verbosity};

/// Small: calls wait for others, they do not compute.
const WORKERS: usize = 2;
/// Disk and kernel work that may run at once.
const BLOCKING: usize = 64;

pub(super) fn run(command: CriCommand) -> Result<()> {
    logging::start(&LogSettings {
        format: LogFormat::Text,
        verbosity: Verbosity { level: command.verbosity.into(), files: Vec::new() },
        split_stream: false,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .context("start the task runtime")?;
    runtime.block_on(serve(command))
}

/// Counts the calls that changed something.
struct CallCounter(watch::Receiver<u64>);

impl ChangeCounter for CallCounter {
    async fn wait_beyond(&mut self, seen: u64) -> u64 {
        let count = self.0.wait_for(|count| *count > seen).await.map(|count| *count);
        match count {
            Ok(count) => count,
            // The server has ended, and the process ends with it.
            Err(_) => std::future::pending().await,
        }
    }
}

async fn serve(command: CriCommand) -> Result<()> {
    let settings = super::settings(&command.root, &command.state, command.config.as_deref())?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let runtime = Runtime::open(settings).await?;
    info!(socket = %command.listen, "Serving the container runtime interface");
    let end = async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: ending; pods go on"),
            _ = interrupt.recv() => info!("SIGINT: ending; pods go on"),
        }
    };
    let (work, done) = watch::channel(0);
    let idle_memory = IdleMemory::default();
    tokio::select! {
        served = runtime.serve(command.listen.socket(), work, end) => served?,
        never = idle_memory.trim_when_idle(CallCounter(done)) => match never {},
    }
    runtime.leave().await;
    Ok(())
}
