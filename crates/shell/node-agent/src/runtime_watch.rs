//! Polls the container runtime's version and status, and publishes the answer.
//!
//! Rule: level-triggered: each answer replaces the last. Only changes are logged. The delays grow
//! while nothing changes, and stay shorter while the runtime does not answer, so an idle agent
//! hardly wakes. Does not act on what it sees.

use crate::back_off::ExponentialBackOff;
use ports::container_runtime::{RuntimeConditionKind, RuntimeStatus, RuntimeVersion};
use ports::{ContainerRuntime, PeriodicTasks};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

/// The runtime's own calls have deadlines; this one holds for whatever implements the port.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const FIRST_PAUSE_ANSWERING: Duration = Duration::from_secs(5);
const LONGEST_PAUSE_ANSWERING: Duration = Duration::from_secs(60);
const FIRST_PAUSE_SILENT: Duration = Duration::from_secs(1);
const LONGEST_PAUSE_SILENT: Duration = Duration::from_secs(30);
/// While the runtime answers but is not ready: its network is often ready shortly after.
const LONGEST_PAUSE_UNREADY: Duration = Duration::from_secs(5);

/// What is known about the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum RuntimeView {
    #[default]
    NotChecked,
    Unreachable {
        why: String,
    },
    Responding {
        version: RuntimeVersion,
        status: RuntimeStatus,
    },
}

impl RuntimeView {
    /// One line for the service's status.
    pub(crate) fn summary(&self) -> String {
        match self {
            RuntimeView::NotChecked => "container runtime not asked yet".to_owned(),
            RuntimeView::Unreachable { why } => format!("container runtime does not answer: {why}"),
            RuntimeView::Responding { version, status } => {
                let name = format!("{} {}", version.runtime_name, version.runtime_version);
                match unmet(status).as_slice() {
                    [] => format!("container runtime {name} is ready"),
                    unmet => format!("container runtime {name}: {}", unmet.join("; ")),
                }
            }
        }
    }
}

/// Conditions that should be met and are not, with the runtime's reason.
fn unmet(status: &RuntimeStatus) -> Vec<String> {
    [RuntimeConditionKind::RuntimeReady, RuntimeConditionKind::NetworkReady]
        .iter()
        .filter_map(|kind| match status.condition(kind) {
            Some(condition) if condition.met => None,
            Some(condition) => Some(format!(
                "{kind} is false, reason {}, message {:?}",
                condition.reason, condition.message
            )),
            None => Some(format!("{kind} is not reported")),
        })
        .collect()
}

/// Polls for ever.
pub(crate) async fn watch_runtime(
    runtime: Arc<dyn ContainerRuntime>,
    view: watch::Sender<RuntimeView>,
    recheck: Arc<Notify>,
    periodic_tasks: Option<Arc<dyn PeriodicTasks>>,
) {
    let mut answering = ExponentialBackOff::new(FIRST_PAUSE_ANSWERING, LONGEST_PAUSE_ANSWERING);
    let mut silent = ExponentialBackOff::new(FIRST_PAUSE_SILENT, LONGEST_PAUSE_SILENT);
    let mut unready = ExponentialBackOff::new(FIRST_PAUSE_SILENT, LONGEST_PAUSE_UNREADY);
    loop {
        let seen = check_runtime(&*runtime).await;
        let changed = view.send_if_modified(|known| {
            let changed = *known != seen;
            if changed {
                log_change(known, &seen);
                known.clone_from(&seen);
            }
            changed
        });
        if changed {
            answering.reset();
        }
        let pause = match &seen {
            RuntimeView::NotChecked | RuntimeView::Unreachable { .. } => silent.pause(),
            RuntimeView::Responding { status, .. } if !unmet(status).is_empty() => {
                silent.reset();
                unready.pause()
            }
            RuntimeView::Responding { .. } => {
                silent.reset();
                unready.reset();
                answering.pause()
            }
        };
        if let Some(periodic_tasks) = &periodic_tasks {
            periodic_tasks.ended();
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // Another task noticed that the runtime is back (its event stream is connected).
            () = recheck.notified() => {}
        }
    }
}

async fn check_runtime(runtime: &dyn ContainerRuntime) -> RuntimeView {
    let both = async {
        let version = runtime.version().await?;
        let status = runtime.status().await?;
        Ok::<_, ports::container_runtime::ContainerRuntimeError>((version, status))
    };
    match tokio::time::timeout(CALL_TIMEOUT, both).await {
        Ok(Ok((version, status))) => RuntimeView::Responding { version, status },
        Ok(Err(error)) => RuntimeView::Unreachable { why: error.to_string() },
        Err(_) => RuntimeView::Unreachable { why: format!("no answer within {CALL_TIMEOUT:?}") },
    }
}

fn log_change(before: &RuntimeView, now: &RuntimeView) {
    match now {
        RuntimeView::NotChecked => {}
        RuntimeView::Unreachable { why } => error!(err = why, "Container runtime does not answer"),
        RuntimeView::Responding { version, status } => {
            let known = match before {
                RuntimeView::Responding { version, .. } => Some(version),
                _ => None,
            };
            if known != Some(version) {
                info!(
                    runtime = version.runtime_name,
                    runtime_version = version.runtime_version,
                    interface_version = version.interface_version,
                    "Container runtime answers"
                );
            }
            match unmet(status).as_slice() {
                [] => info!("Container runtime and its network are ready"),
                unmet => warn!(conditions = unmet.join("; "), "Container runtime is not ready"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
