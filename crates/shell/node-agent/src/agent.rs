//! The agent's lifecycle: start the tasks, report readiness, wait for a reason to end, end.
//!
//! Rule: ending ends the agent's tasks and nothing else; no container stops. Every dependency is
//! passed in, so a test runs the whole agent on fakes and paused time.

use crate::clock::AgentClock;
use crate::health::{self, HealthSources};
use crate::loop_heartbeats::LoopHeartbeats;
use crate::pod_tasks::{self, PodDependencies, PodTaskInputs};
use crate::runtime_watch::{self, RuntimeView};
use crate::task_tree::TaskTree;
use crate::watchdog;
use ports::{
    ContainerRuntime, HealthCheck, HealthEndpoint, ServiceNotifier, ServiceState, ShutdownReason,
    ShutdownRequests,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

/// How long tasks may take to be dropped before the agent exits without them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The agent's dependencies.
pub struct AgentDependencies {
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The service manager; None if it asked for no notifications.
    pub notifier: Option<Arc<dyn ServiceNotifier>>,
    /// The service manager ends an agent that has not pinged for this long.
    pub watchdog_timeout: Option<Duration>,
    /// None if the port is 0.
    pub health_endpoint: Option<Arc<dyn HealthEndpoint>>,
    /// Whether the log can be written; None if that cannot be checked.
    pub log_check: Option<Arc<dyn HealthCheck>>,
    /// `syncFrequency`: the allowed silence of the main loops depends on it.
    pub sync_frequency: Duration,
    pub end_requests: Box<dyn ShutdownRequests>,
    /// None for an agent that runs no pods.
    pub pods: Option<PodDependencies>,
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentExit {
    pub reason: ShutdownReason,
    /// A second request to end came while the agent was ending, so it did not wait for its tasks.
    pub immediate: bool,
}

/// Runs until there is a reason to end; a second one ends the agent without waiting for its tasks.
pub async fn run(dependencies: AgentDependencies) -> AgentExit {
    let AgentDependencies { runtime, notifier, watchdog_timeout, health_endpoint, .. } =
        dependencies;
    let AgentDependencies { mut end_requests, pods, log_check, sync_frequency, .. } = dependencies;
    let loop_heartbeats = LoopHeartbeats::default();
    let sources =
        HealthSources { log: log_check, loop_heartbeats: loop_heartbeats.clone(), sync_frequency };
    let mut tree = TaskTree::default();
    let (view_sender, view) = watch::channel(RuntimeView::default());
    if let (Some(notifier), Some(time)) = (&notifier, watchdog_timeout) {
        let notifier = notifier.clone();
        let checks = sources.watchdog_checks(tree.failures());
        tree.start("watchdog", move || {
            watchdog::ping_watchdog(notifier.clone(), time, checks.clone())
        });
    }
    if let Some(endpoint) = health_endpoint {
        let checks = sources.public_checks();
        tree.start("health-endpoint", move || health::serve(endpoint.clone(), checks.clone()));
    }
    let recheck = Arc::new(Notify::new());
    let returned = recheck.clone();
    let periodic_tasks = pods.as_ref().map(|pods| pods.ports.periodic_tasks.clone());
    tree.start("runtime-watch", move || {
        let (runtime, view) = (runtime.clone(), view_sender.clone());
        runtime_watch::watch_runtime(runtime, view, returned.clone(), periodic_tasks.clone())
    });
    if let Some(pods) = pods {
        let checks = sources.public_checks();
        let inputs = PodTaskInputs {
            runtime_view: &view,
            recheck,
            clock: &AgentClock::system(),
            loop_heartbeats: &loop_heartbeats,
            checks,
        };
        pod_tasks::start(&mut tree, pods, inputs);
    }
    notify(notifier.as_deref(), &ServiceState::Ready);
    info!("Node agent is running");
    if let Some(notifier) = notifier.clone() {
        tree.start("service-status", move || publish_status(notifier.clone(), view.clone()));
    }

    let reason = end_requests.next().await;
    info!(reason = %reason, "Node agent is ending; containers go on running");
    notify(notifier.as_deref(), &ServiceState::Stopping);
    let immediate = tokio::select! {
        ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, tree.end()) => {
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
    AgentExit { reason, immediate }
}

/// Shows the runtime's state in the service's status line, on changes only.
async fn publish_status(
    notifier: Arc<dyn ServiceNotifier>,
    mut view: watch::Receiver<RuntimeView>,
) {
    while view.changed().await.is_ok() {
        let summary = view.borrow_and_update().summary();
        notify(Some(&*notifier), &ServiceState::Status(summary));
    }
}

fn notify(notifier: Option<&dyn ServiceNotifier>, state: &ServiceState) {
    if let Some(Err(error)) = notifier.map(|notifier| notifier.notify(state)) {
        warn!(err = %error, "Failed to notify the service manager");
    }
}

#[cfg(test)]
mod tests;
