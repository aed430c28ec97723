//! The whole agent on fakes and paused time.

use super::*;
use ports::container_runtime::{ContainerRuntimeError, RuntimeStatus, RuntimeVersion};
use ports::{HealthChecks, HealthEndpointError, PortFuture, ServiceNotifierError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;

/// A runtime that panics on every call.
#[derive(Default)]
struct PanickingRuntime(AtomicU32);

impl ContainerRuntime for PanickingRuntime {
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { panic!("the runtime adapter is broken") })
    }
    fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>> {
        Box::pin(std::future::pending())
    }
}

#[derive(Default)]
struct RecordedStates(Mutex<Vec<ServiceState>>);

impl ServiceNotifier for RecordedStates {
    fn notify(&self, state: &ServiceState) -> Result<(), ServiceNotifierError> {
        self.0.lock().unwrap().push(state.clone());
        Ok(())
    }
}

#[derive(Default)]
struct CountingHealthEndpoint(AtomicU32);

impl HealthEndpoint for CountingHealthEndpoint {
    fn address(&self) -> String {
        "nowhere".to_owned()
    }
    fn serve(&self, _checks: HealthChecks) -> PortFuture<'_, HealthEndpointError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

struct ChannelEndRequests(mpsc::Receiver<ShutdownReason>);

impl ShutdownRequests for ChannelEndRequests {
    fn next(&mut self) -> PortFuture<'_, ShutdownReason> {
        Box::pin(async {
            match self.0.recv().await {
                Some(reason) => reason,
                None => std::future::pending().await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_task_does_not_end_the_agent_and_a_signal_does() {
    let runtime = Arc::new(PanickingRuntime::default());
    let recorded = Arc::new(RecordedStates::default());
    let counting_endpoint = Arc::new(CountingHealthEndpoint::default());
    let (ask, asked) = mpsc::channel(1);
    let agent = tokio::spawn(run(AgentDependencies {
        runtime: runtime.clone(),
        notifier: Some(recorded.clone()),
        watchdog_timeout: Some(Duration::from_secs(20)),
        health_endpoint: Some(counting_endpoint.clone()),
        end_requests: Box::new(ChannelEndRequests(asked)),
        log_check: None,
        sync_frequency: Duration::from_secs(60),
        pods: None,
    }));
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(!agent.is_finished());
    assert_eq!(runtime.0.load(Ordering::SeqCst), 4, "started again after 1, 2 and 4 seconds");
    assert_eq!(counting_endpoint.0.load(Ordering::SeqCst), 1, "the other tasks were left alone");
    ask.send(ShutdownReason::Signal("SIGTERM")).await.unwrap();
    let ended = agent.await.unwrap();
    assert_eq!(ended, AgentExit { reason: ShutdownReason::Signal("SIGTERM"), immediate: false });
    let mut recorded = recorded.0.lock().unwrap().clone();
    // The scheduler decides which of the first two comes first.
    recorded[..2].sort_by_key(|state| *state == ServiceState::Watchdog);
    assert_eq!(
        recorded,
        [
            ServiceState::Ready,
            ServiceState::Watchdog,
            ServiceState::Watchdog,
            ServiceState::Stopping
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_agent_runs_without_a_service_manager_and_without_a_health_port() {
    let (ask, asked) = mpsc::channel(1);
    let agent = tokio::spawn(run(AgentDependencies {
        runtime: Arc::new(PanickingRuntime::default()),
        notifier: None,
        watchdog_timeout: Some(Duration::from_secs(20)),
        health_endpoint: None,
        end_requests: Box::new(ChannelEndRequests(asked)),
        log_check: None,
        sync_frequency: Duration::from_secs(60),
        pods: None,
    }));
    ask.send(ShutdownReason::Signal("SIGINT")).await.unwrap();
    assert_eq!(agent.await.unwrap().reason, ShutdownReason::Signal("SIGINT"));
}

#[tokio::test]
async fn a_second_end_request_ends_the_agent_without_waiting_for_tasks() {
    let (ask, asked) = mpsc::channel(2);
    for signal in ["SIGTERM", "SIGINT"] {
        ask.send(ShutdownReason::Signal(signal)).await.unwrap();
    }
    let ended = run(AgentDependencies {
        runtime: Arc::new(PanickingRuntime::default()),
        notifier: None,
        watchdog_timeout: None,
        health_endpoint: Some(Arc::new(CountingHealthEndpoint::default())),
        end_requests: Box::new(ChannelEndRequests(asked)),
        log_check: None,
        sync_frequency: Duration::from_secs(60),
        pods: None,
    })
    .await;
    assert_eq!(ended, AgentExit { reason: ShutdownReason::Signal("SIGTERM"), immediate: true });
}
