//! The agent's health checks, and the task that serves them.
//!
//! Rule: a check reads what other tasks publish. An endpoint that cannot be served is retried every
//! five seconds, as upstream (cmd/kubelet/app/server.go) does, and affects nothing else.

use crate::loop_heartbeats::LoopHeartbeats;
use crate::task_tree::TaskFailures;
use ports::{HealthCheck, HealthChecks, HealthEndpoint};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const SERVE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// A task that panicked this often in a row is not expected to recover.
const MAX_PANICS_IN_A_ROW: u32 = 5;
/// The shortest silence of a main loop that is an error; longer if pods are synced seldom.
const MIN_SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// Always passes.
struct PingCheck;

impl HealthCheck for PingCheck {
    fn name(&self) -> &str {
        "ping"
    }
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Fails when a task does nothing but panic.
struct TaskPanicCheck(TaskFailures);

impl HealthCheck for TaskPanicCheck {
    fn name(&self) -> &str {
        "tasks"
    }
    fn check(&self) -> Result<(), String> {
        match self.0.worst() {
            Some((task, panics)) if panics >= MAX_PANICS_IN_A_ROW => {
                Err(format!("task {task} panicked {panics} times in a row"))
            }
            _ => Ok(()),
        }
    }
}

/// Fails when a main loop has not completed an iteration for too long.
/// upstream: pkg/kubelet/kubelet.go (SyncLoopHealthCheck)
struct SyncLoopCheck {
    loop_heartbeats: LoopHeartbeats,
    longest: Duration,
}

impl HealthCheck for SyncLoopCheck {
    fn name(&self) -> &str {
        "syncloop"
    }
    fn check(&self) -> Result<(), String> {
        match self.loop_heartbeats.most_silent() {
            Some((name, silent)) if silent > self.longest => Err(format!(
                "sync Loop took longer than expected: {name} has not come round for {} s",
                silent.as_secs()
            )),
            _ => Ok(()),
        }
    }
}

/// The checks of each endpoint.
#[derive(Clone)]
pub(crate) struct HealthSources {
    /// The log's check, from the binary.
    pub(crate) log: Option<Arc<dyn HealthCheck>>,
    pub(crate) loop_heartbeats: LoopHeartbeats,
    pub(crate) sync_frequency: Duration,
}

impl HealthSources {
    /// The checks of the health port, in upstream's order. Upstream's health port (10248) serves
    /// `ping` alone and its secure port all three; here the first does too, so that a stuck agent
    /// cannot call itself healthy.
    pub(crate) fn public_checks(&self) -> HealthChecks {
        let mut checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(PingCheck)];
        checks.extend(self.log.clone());
        checks.push(self.sync_loop());
        checks.into()
    }

    /// The checks that must pass before the watchdog is pinged. Not the log: a blocked log holds up
    /// nothing here, and a new process would find the same reader.
    pub(crate) fn watchdog_checks(&self, failures: TaskFailures) -> HealthChecks {
        let checks: Vec<Arc<dyn HealthCheck>> =
            vec![Arc::new(PingCheck), self.sync_loop(), Arc::new(TaskPanicCheck(failures))];
        checks.into()
    }

    fn sync_loop(&self) -> Arc<dyn HealthCheck> {
        let longest = self.sync_frequency.saturating_mul(2).max(MIN_SILENCE_LIMIT);
        Arc::new(SyncLoopCheck { loop_heartbeats: self.loop_heartbeats.clone(), longest })
    }
}

/// Serves the checks for ever.
pub(crate) async fn serve(endpoint: Arc<dyn HealthEndpoint>, checks: HealthChecks) {
    loop {
        info!(v = 2, address = endpoint.address(), "Serving health checks");
        let failure = endpoint.serve(checks.clone()).await;
        error!(err = %failure, retry_in_seconds = SERVE_RETRY_DELAY.as_secs(), "Failed to serve health checks");
        tokio::time::sleep(SERVE_RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests;
