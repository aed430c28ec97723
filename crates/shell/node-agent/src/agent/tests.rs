//! The whole agent on fakes and paused time.

use super::*;
use ports::container_runtime::{ContainerRuntimeError, RuntimeStatus, RuntimeVersion};
use ports::{HealthChecks, HealthEndpointError, PortFuture, ServiceSupervisorError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;

/// A runtime that panics on every call.
#[derive(Default)]
struct Exploding(AtomicU32);

impl ContainerRuntime for Exploding {
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { panic!("the runtime adapter is broken") })
    }
    fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>> {
        Box::pin(std::future::pending())
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<ServiceState>>);

impl ServiceSupervisor for Told {
    fn tell(&self, state: &ServiceState) -> Result<(), ServiceSupervisorError> {
        self.0.lock().unwrap().push(state.clone());
        Ok(())
    }
}

#[derive(Default)]
struct Serving(AtomicU32);

impl HealthEndpoint for Serving {
    fn address(&self) -> String {
        "nowhere".to_owned()
    }
    fn serve(&self, _checks: HealthChecks) -> PortFuture<'_, HealthEndpointError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

struct Asked(mpsc::Receiver<EndReason>);

impl EndRequests for Asked {
    fn next(&mut self) -> PortFuture<'_, EndReason> {
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
    let runtime = Arc::new(Exploding::default());
    let told = Arc::new(Told::default());
    let serving = Arc::new(Serving::default());
    let (ask, asked) = mpsc::channel(1);
    let agent = tokio::spawn(run(AgentParts {
        runtime: runtime.clone(),
        supervisor: Some(told.clone()),
        watchdog_time: Some(Duration::from_secs(20)),
        health_endpoint: Some(serving.clone()),
        end_requests: Box::new(Asked(asked)),
        log_check: None,
        sync_frequency: Duration::from_secs(60),
        pods: None,
    }));
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(!agent.is_finished());
    assert_eq!(runtime.0.load(Ordering::SeqCst), 4, "started again after 1, 2 and 4 seconds");
    assert_eq!(serving.0.load(Ordering::SeqCst), 1, "the other tasks were left alone");
    ask.send(EndReason::Signal("SIGTERM")).await.unwrap();
    let ended = agent.await.unwrap();
    assert_eq!(ended, Ended { reason: EndReason::Signal("SIGTERM"), at_once: false });
    let mut told = told.0.lock().unwrap().clone();
    // The scheduler decides which of the first two comes first.
    told[..2].sort_by_key(|state| *state == ServiceState::Watchdog);
    assert_eq!(
        told,
        [
            ServiceState::Ready,
            ServiceState::Watchdog,
            ServiceState::Watchdog,
            ServiceState::Stopping
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_supervisor_or_a_port_the_agent_just_runs() {
    let (ask, asked) = mpsc::channel(1);
    let agent = tokio::spawn(run(AgentParts {
        runtime: Arc::new(Exploding::default()),
        supervisor: None,
        watchdog_time: Some(Duration::from_secs(20)),
        health_endpoint: None,
        end_requests: Box::new(Asked(asked)),
        log_check: None,
        sync_frequency: Duration::from_secs(60),
        pods: None,
    }));
    ask.send(EndReason::Signal("SIGINT")).await.unwrap();
    assert_eq!(agent.await.unwrap().reason, EndReason::Signal("SIGINT"));
}

#[tokio::test]
async fn asked_again_while_ending_it_waits_for_nothing() {
    let (ask, asked) = mpsc::channel(2);
    for signal in ["SIGTERM", "SIGINT"] {
        ask.send(EndReason::Signal(signal)).await.unwrap();
    }
    let ended = run(AgentParts {
        runtime: Arc::new(Exploding::default()),
        supervisor: None,
        watchdog_time: None,
        health_endpoint: Some(Arc::new(Serving::default())),
        end_requests: Box::new(Asked(asked)),
        log_check: None,
        sync_frequency: Duration::from_secs(60),
        pods: None,
    })
    .await;
    assert_eq!(ended, Ended { reason: EndReason::Signal("SIGTERM"), at_once: true });
}
