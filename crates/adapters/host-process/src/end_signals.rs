//! SIGTERM, SIGINT and a contended lock file as requests to stop.
//!
//! Rule: SIGHUP keeps the default action of a Go program, which is to die by it: nothing is
//! reloaded, nothing is stopped, and the service manager restarts the agent.

use crate::lock_file::ContentionWatch;
use ports::{PortFuture, ShutdownReason, ShutdownRequests};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals of this process, and optionally the contention of its lock file.
#[derive(Debug)]
pub struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    contention: Option<ContentionWatch>,
}

impl EndSignals {
    /// Handles both signals from now on. Needs a running tokio reactor.
    pub fn listen(contention: Option<ContentionWatch>) -> std::io::Result<EndSignals> {
        Ok(EndSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            contention,
        })
    }
}

impl ShutdownRequests for EndSignals {
    fn next(&mut self) -> PortFuture<'_, ShutdownReason> {
        Box::pin(async {
            let contention = self.contention.as_ref();
            let contended = async {
                match contention {
                    Some(watch) => watch.contended().await,
                    None => std::future::pending().await,
                }
            };
            // Each branch is cancel-safe: a signal that is not taken stays pending in its stream.
            let contended = tokio::select! {
                _ = self.terminate.recv() => return ShutdownReason::Signal("SIGTERM"),
                _ = self.interrupt.recv() => return ShutdownReason::Signal("SIGINT"),
                event = contended => event,
            };
            // Reported once; further contention is not a second request.
            let path = self
                .contention
                .take()
                .map(|watch| watch.path().display().to_string())
                .unwrap_or_default();
            ShutdownReason::LockContended { path, event: contended }
        })
    }
}
