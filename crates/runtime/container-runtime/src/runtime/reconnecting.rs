//! After a connection to a supervisor was cut: reconnects to it, or settles the pod.
//!
//! Rule: a connection may end while its supervisor lives (no descriptors left, a full queue, an
//! invalid frame); then the pod continues unchanged. Only if the socket has no listener is the
//! supervisor dead, and its pod with it. As long as neither is certain, the connection is retried.

use std::sync::Arc;
use std::time::Duration;

use pod_supervisor::protocol::{ContainerPhase, ContainerState};
use pod_supervisor::{ClientError, SupervisorClient};

use super::Runtime;
use super::supervisor_launch::{FIRST_PAUSE, pause_after};
use crate::failure::{CriError, Result};
use crate::record_store::{Container, Sandbox};
use crate::records::SandboxStage;
use crate::supervision::SupervisorConnection;

/// How often a call is repeated over another connection, should each of them end.
const MAX_ATTEMPTS: usize = 3;
/// The interval at which a starting container is checked.
const START_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Runtime {
    /// Handles a connection that ended unexpectedly.
    pub(super) async fn on_connection_lost(&self, sandbox: &Arc<Sandbox>, why: &str) {
        tracing::debug!(sandbox = sandbox.id, why, "the connection to a supervisor has ended");
        self.reconnect_until_settled(sandbox).await;
    }

    /// Retries until there is a result: the supervisor, or none if it is dead and the pod is
    /// settled.
    async fn reconnect_until_settled(
        &self,
        sandbox: &Arc<Sandbox>,
    ) -> Option<Arc<SupervisorConnection>> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_reconnect(sandbox).await {
                Ok(reconnected) => return reconnected,
                Err(failure) => {
                    tracing::error!(sandbox = sandbox.id, %failure, "reconnecting to a supervisor");
                }
            }
            tokio::time::sleep(pause).await;
            pause = pause_after(pause);
        }
    }

    /// One attempt. Takes the sandbox's turn.
    async fn try_reconnect(
        &self,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Option<Arc<SupervisorConnection>>> {
        let _guard = sandbox.exclusive_lock.lock().await;
        if let Some(supervisor) = sandbox.supervisor() {
            return Ok(Some(supervisor));
        }
        sandbox.set_supervisor(None);
        if sandbox.record().stage() != SandboxStage::Ready {
            sandbox.execs.fail_all();
            return Ok(None);
        }
        match SupervisorClient::connect(&self.pod_dir(&sandbox.id)).await {
            Ok(connection) => {
                tracing::warn!(sandbox = sandbox.id, "reconnected to a supervisor");
                let supervisor = self.attach_connection(sandbox, connection);
                if let Err(error) = self.sync_from_supervisor(sandbox, &supervisor).await {
                    sandbox.set_supervisor(None);
                    return Err(error.into());
                }
                Ok(Some(supervisor))
            }
            Err(error) if error.is_not_listening() => {
                tracing::warn!(sandbox = sandbox.id, "the pod's supervisor has ended");
                self.settle_orphaned_pod(sandbox, false).await?;
                sandbox.execs.fail_all();
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The supervisor of a pod, or the reason why it cannot be called.
    pub(crate) async fn supervisor_of(
        &self,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Arc<SupervisorConnection>> {
        if sandbox.supervisor().is_none() {
            self.try_reconnect(sandbox).await?;
        }
        sandbox.require_supervisor()
    }

    /// Lists the supervisor's containers and execs, and applies their states.
    async fn sync_from_supervisor(
        &self,
        sandbox: &Arc<Sandbox>,
        supervisor: &SupervisorConnection,
    ) -> Result<(), ClientError> {
        let started_ids = sandbox.execs.started_ids();
        let known = supervisor.client.list().await?;
        for state in &known.containers {
            if let Err(failure) = self.adopt(state).await {
                tracing::error!(container = state.id, %failure, "applying a container's state");
            }
        }
        sandbox.execs.reconcile(&started_ids, &known.execs);
        Ok(())
    }

    /// Lists again after events of the supervisor were lost.
    pub(super) async fn resync(&self, sandbox: &Arc<Sandbox>) {
        let mut pause = FIRST_PAUSE;
        while let Some(supervisor) = sandbox.supervisor() {
            match self.sync_from_supervisor(sandbox, &supervisor).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(sandbox = sandbox.id, %error, "listing again"),
            }
            drop(supervisor);
            tokio::time::sleep(pause).await;
            pause = pause_after(pause);
        }
    }

    /// Calls a pod's supervisor, again over another connection if one is cut. An object that the
    /// supervisor does not know counts as done, as does any call in a pod without a supervisor.
    pub(crate) async fn call_supervisor<F>(
        &self,
        sandbox: &Arc<Sandbox>,
        call: impl Fn(SupervisorClient) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        for _ in 0..MAX_ATTEMPTS {
            let reconnected = match sandbox.supervisor() {
                None => self.try_reconnect(sandbox).await?,
                reconnected => reconnected,
            };
            let Some(supervisor) = reconnected else { return Ok(()) };
            match call(supervisor.client.clone()).await {
                Err(error) if error.is_disconnected() => {}
                Err(error) if error.is_not_found() => return Ok(()),
                outcome => return Ok(outcome?),
            }
        }
        Err(CriError::plain(format!(
            "the supervisor of sandbox {:?} cannot be reached",
            sandbox.id
        )))
    }

    /// After a start whose answer was lost: queries whether the program runs. True: it does, or
    /// did.
    pub(super) async fn did_start(
        &self,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
    ) -> Result<bool> {
        loop {
            let Some(supervisor) = self.reconnect_until_settled(sandbox).await else {
                // The pod may have been settled before the start was recorded.
                self.settle_interrupted_start(container).await?;
                return Ok(false);
            };
            let Ok(known) = supervisor.client.list().await else {
                tokio::time::sleep(FIRST_PAUSE).await;
                continue;
            };
            let state = known.containers.into_iter().find(|state| state.id == container.id);
            if state.as_ref().is_some_and(|state| state.starting) {
                tokio::time::sleep(START_POLL_INTERVAL).await;
                continue;
            }
            let Some(state) = state.filter(has_run) else { break };
            self.adopt(&state).await?;
            return Ok(true);
        }
        let id = &container.id;
        let delete = |client: SupervisorClient| async move { client.delete(id).await };
        if let Err(failure) = self.call_supervisor(sandbox, delete).await {
            tracing::warn!(container = container.id, %failure, "after a failed start");
        }
        Ok(false)
    }
}

/// Its program was executed, whatever happened to it later.
pub(super) fn has_run(state: &ContainerState) -> bool {
    match ContainerPhase::try_from(state.phase) {
        Ok(ContainerPhase::Running) => true,
        Ok(ContainerPhase::Exited) => state.started_at != 0,
        _ => false,
    }
}
