//! The checks that say whether this agent is well, and the task that serves them.
//!
//! Rule: a check reads what others published. An endpoint that cannot serve costs only itself: it
//! is tried again every five seconds, as upstream (cmd/kubelet/app/server.go) does.

use crate::task_tree::TaskFailures;
use ports::{HealthCheck, HealthChecks, HealthEndpoint};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const SERVE_AGAIN: Duration = Duration::from_secs(5);
/// A task that panicked this often in a row will hardly come back by itself.
const TOO_MANY_PANICS: u32 = 5;

/// True whenever it can be asked.
struct Ping;

impl HealthCheck for Ping {
    fn name(&self) -> &str {
        "ping"
    }
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Fails when some task does nothing but panic.
struct Tasks(TaskFailures);

impl HealthCheck for Tasks {
    fn name(&self) -> &str {
        "tasks"
    }
    fn check(&self) -> Result<(), String> {
        match self.0.worst() {
            Some((task, panics)) if panics >= TOO_MANY_PANICS => {
                Err(format!("task {task} panicked {panics} times in a row"))
            }
            _ => Ok(()),
        }
    }
}

/// What the health port answers for. upstream: only `ping` (healthz.InstallHandler without checks).
pub(crate) fn public_checks() -> HealthChecks {
    let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(Ping)];
    checks.into()
}

/// What must be in order for the watchdog to hear of us.
pub(crate) fn watchdog_checks(failures: TaskFailures) -> HealthChecks {
    let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(Ping), Arc::new(Tasks(failures))];
    checks.into()
}

/// Serves the public checks for ever.
pub(crate) async fn serve(endpoint: Arc<dyn HealthEndpoint>) {
    loop {
        info!(v = 2, address = endpoint.address(), "Serving health checks");
        let failure = endpoint.serve(public_checks()).await;
        error!(err = %failure, retry_in_seconds = SERVE_AGAIN.as_secs(), "Failed to serve health checks");
        tokio::time::sleep(SERVE_AGAIN).await;
    }
}

#[cfg(test)]
mod tests;
