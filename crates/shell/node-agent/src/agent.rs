//! The agent's lifecycle: start the tasks, report readiness, wait for a reason to end, end.
//!
//! Rule: ending ends the agent's tasks and nothing else; no container stops. Every dependency is
//! passed in, so a test runs the whole agent on fakes and paused time.

use crate::health::{self, HealthSources};
use crate::loop_beats::LoopBeats;
use crate::runtime_watch::{self, RuntimeView};
use crate::standalone::{self, PodParts};
use crate::task_tree::TaskTree;
use crate::watchdog;
use ports::{
    ContainerRuntime, EndReason, EndRequests, HealthCheck, HealthEndpoint, ServiceState,
    ServiceSupervisor,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

/// How long tasks may take to be dropped before the agent exits without them.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The agent's dependencies.
pub struct AgentParts {
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The service manager; None if it asked for no notifications.
    pub supervisor: Option<Arc<dyn ServiceSupervisor>>,
    /// The service manager ends an agent that has not pinged for this long.
    pub watchdog_time: Option<Duration>,
    /// None if the port is 0.
    pub health_endpoint: Option<Arc<dyn HealthEndpoint>>,
    /// Whether the log can be written; None if that cannot be checked.
    pub log_check: Option<Arc<dyn HealthCheck>>,
    /// `syncFrequency`: the allowed silence of the main loops depends on it.
    pub sync_frequency: Duration,
    pub end_requests: Box<dyn EndRequests>,
    /// None for an agent that runs no pods.
    pub pods: Option<PodParts>,
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub reason: EndReason,
    /// A second request to end came while the agent was ending, so it did not wait for its tasks.
    pub at_once: bool,
}

/// Runs until there is a reason to end; a second one ends the agent without waiting for its tasks.
pub async fn run(parts: AgentParts) -> Ended {
    let AgentParts { runtime, supervisor, watchdog_time, health_endpoint, .. } = parts;
    let AgentParts { mut end_requests, pods, log_check, sync_frequency, .. } = parts;
    let beats = LoopBeats::default();
    let sources = HealthSources { log: log_check, beats: beats.clone(), sync_frequency };
    let mut tree = TaskTree::default();
    let (view_sender, view) = watch::channel(RuntimeView::default());
    if let (Some(supervisor), Some(time)) = (&supervisor, watchdog_time) {
        let supervisor = supervisor.clone();
        let checks = sources.watchdog_checks(tree.failures());
        tree.start("watchdog", move || {
            watchdog::keep_quiet(supervisor.clone(), time, checks.clone())
        });
    }
    if let Some(endpoint) = health_endpoint {
        let checks = sources.public_checks();
        tree.start("health-endpoint", move || health::serve(endpoint.clone(), checks.clone()));
    }
    let look_again = Arc::new(Notify::new());
    let heard = look_again.clone();
    let rounds = pods.as_ref().map(|pods| pods.ports.rounds.clone());
    tree.start("runtime-watch", move || {
        let (runtime, view) = (runtime.clone(), view_sender.clone());
        runtime_watch::watch_runtime(runtime, view, heard.clone(), rounds.clone())
    });
    if let Some(pods) = pods {
        let checks = sources.public_checks();
        standalone::start(&mut tree, pods, (&view, look_again), &beats, checks);
    }
    tell(supervisor.as_deref(), &ServiceState::Ready);
    info!("Node agent is running");
    if let Some(supervisor) = supervisor.clone() {
        tree.start("service-status", move || publish_status(supervisor.clone(), view.clone()));
    }

    let reason = end_requests.next().await;
    info!(reason = %reason, "Node agent is ending; containers go on running");
    tell(supervisor.as_deref(), &ServiceState::Stopping);
    let at_once = tokio::select! {
        ended = tokio::time::timeout(END_PATIENCE, tree.end()) => {
            if ended.is_err() {
                warn!("Some tasks did not end in time; ending without them");
            }
            false
        }
        again = end_requests.next() => {
            error!(fatal = true, reason = %again, "Asked again; ending at once");
            true
        }
    };
    Ended { reason, at_once }
}

/// Shows the runtime's state in the service's status line, on changes only.
async fn publish_status(
    supervisor: Arc<dyn ServiceSupervisor>,
    mut view: watch::Receiver<RuntimeView>,
) {
    while view.changed().await.is_ok() {
        let summary = view.borrow_and_update().summary();
        tell(Some(&*supervisor), &ServiceState::Status(summary));
    }
}

fn tell(supervisor: Option<&dyn ServiceSupervisor>, state: &ServiceState) {
    if let Some(Err(error)) = supervisor.map(|supervisor| supervisor.tell(state)) {
        warn!(err = %error, "Failed to notify the service manager");
    }
}

#[cfg(test)]
mod tests;
