//! After a connection to a supervisor was cut: reconnects to it, or settles the pod.
//!
//! Rule: a connection may end while its supervisor lives (no descriptors left, a full queue, an
//! invalid frame); then the pod continues unchanged. Only if the socket has no listener is the
//! supervisor dead, and its pod with it. As long as neither is certain, the connection is retried.

use std::sync::Arc;
use std::time::Duration;

use pod_supervisor::protocol::{ContainerState, Phase};
use pod_supervisor::{Client, ClientError};

use super::Runtime;
use super::launching::{FIRST_PAUSE, pause_after};
use crate::book::{Container, Sandbox};
use crate::failure::{Failure, Result};
use crate::records::SandboxStage;
use crate::supervision::Supervisor;

/// How often a call is repeated over another connection, should each of them end.
const MOST_TRIES: usize = 3;
/// The interval at which a starting container is checked.
const STARTING: Duration = Duration::from_millis(10);

impl Runtime {
    /// Handles a connection that ended unexpectedly.
    pub(super) async fn cut_off(&self, sandbox: &Arc<Sandbox>, why: &str) {
        tracing::debug!(sandbox = sandbox.id, why, "the connection to a supervisor has ended");
        self.meet_at_last(sandbox).await;
    }

    /// Retries until there is a result: the supervisor, or none if it is dead and the pod is
    /// settled.
    async fn meet_at_last(&self, sandbox: &Arc<Sandbox>) -> Option<Arc<Supervisor>> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.meet_again(sandbox).await {
                Ok(met) => return met,
                Err(failure) => {
                    tracing::error!(sandbox = sandbox.id, %failure, "reconnecting to a supervisor");
                }
            }
            tokio::time::sleep(pause).await;
            pause = pause_after(pause);
        }
    }

    /// One attempt. Takes the sandbox's turn.
    async fn meet_again(&self, sandbox: &Arc<Sandbox>) -> Result<Option<Arc<Supervisor>>> {
        let _turn = sandbox.turn.lock().await;
        if let Some(supervisor) = sandbox.supervisor() {
            return Ok(Some(supervisor));
        }
        sandbox.set_supervisor(None);
        if sandbox.record().stage() != SandboxStage::Ready {
            sandbox.execs.give_up();
            return Ok(None);
        }
        match Client::connect(&self.pod_folder(&sandbox.id)).await {
            Ok(connection) => {
                tracing::warn!(sandbox = sandbox.id, "reconnected to a supervisor");
                let supervisor = self.take_up(sandbox, connection);
                if let Err(error) = self.hear_all(sandbox, &supervisor).await {
                    sandbox.set_supervisor(None);
                    return Err(error.into());
                }
                Ok(Some(supervisor))
            }
            Err(error) if error.is_nobody() => {
                tracing::warn!(sandbox = sandbox.id, "the pod's supervisor has ended");
                self.settle_without_supervisor(sandbox, false).await?;
                sandbox.execs.give_up();
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The supervisor of a pod, or the reason why it cannot be called.
    pub(crate) async fn supervisor_of(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<Supervisor>> {
        if sandbox.supervisor().is_none() {
            self.meet_again(sandbox).await?;
        }
        sandbox.reachable()
    }

    /// Lists the supervisor's containers and execs, and applies their states.
    async fn hear_all(
        &self,
        sandbox: &Arc<Sandbox>,
        supervisor: &Supervisor,
    ) -> Result<(), ClientError> {
        let running = sandbox.execs.running();
        let known = supervisor.client.list().await?;
        for state in &known.containers {
            if let Err(failure) = self.adopt(state).await {
                tracing::error!(container = state.id, %failure, "applying a container's state");
            }
        }
        sandbox.execs.settle(&running, &known.execs);
        Ok(())
    }

    /// Lists again after events of the supervisor were lost.
    pub(super) async fn look_again(&self, sandbox: &Arc<Sandbox>) {
        let mut pause = FIRST_PAUSE;
        while let Some(supervisor) = sandbox.supervisor() {
            match self.hear_all(sandbox, &supervisor).await {
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
    pub(crate) async fn by_supervisor<F>(
        &self,
        sandbox: &Arc<Sandbox>,
        call: impl Fn(Client) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        for _ in 0..MOST_TRIES {
            let met = match sandbox.supervisor() {
                None => self.meet_again(sandbox).await?,
                met => met,
            };
            let Some(supervisor) = met else { return Ok(()) };
            match call(supervisor.client.clone()).await {
                Err(error) if error.is_gone() => {}
                Err(error) if error.is_not_found() => return Ok(()),
                outcome => return Ok(outcome?),
            }
        }
        Err(Failure::plain(format!("the supervisor of sandbox {:?} cannot be reached", sandbox.id)))
    }

    /// After a start whose answer was lost: queries whether the program runs. True: it does, or
    /// did.
    pub(super) async fn started_after_all(
        &self,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
    ) -> Result<bool> {
        loop {
            let Some(supervisor) = self.meet_at_last(sandbox).await else {
                // The pod may have been settled before the start was recorded.
                self.settle_start(container).await?;
                return Ok(false);
            };
            let Ok(known) = supervisor.client.list().await else {
                tokio::time::sleep(FIRST_PAUSE).await;
                continue;
            };
            let state = known.containers.into_iter().find(|state| state.id == container.id);
            if state.as_ref().is_some_and(|state| state.starting) {
                tokio::time::sleep(STARTING).await;
                continue;
            }
            let Some(state) = state.filter(has_run) else { break };
            self.adopt(&state).await?;
            return Ok(true);
        }
        let id = &container.id;
        let delete = |client: Client| async move { client.delete(id).await };
        if let Err(failure) = self.by_supervisor(sandbox, delete).await {
            tracing::warn!(container = container.id, %failure, "after a failed start");
        }
        Ok(false)
    }
}

/// Its program was executed, whatever happened to it later.
pub(super) fn has_run(state: &ContainerState) -> bool {
    match Phase::try_from(state.phase) {
        Ok(Phase::Running) => true,
        Ok(Phase::Exited) => state.started_at != 0,
        _ => false,
    }
}
