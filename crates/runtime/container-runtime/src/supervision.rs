//! The connection to a pod's supervisor: calls, and the events that it sends.
//!
//! Rule: receiving events never waits for a disk. When the connection ends, its owner checks
//! whether the supervisor still lives; waiters of execs go on waiting until that is known, and then
//! get their exits over the next connection. The waiter of a lost exit gets an error.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pod_supervisor::protocol::{
    ContainerState, Event, EventBody, ExecState, ProcessExit, RequestErrorKind,
};
use pod_supervisor::{ClientConnection, ClientError, SupervisorClient};
use tokio::sync::{mpsc, oneshot};
use tonic::Code;

use crate::failure::CriError;

#[cfg(test)]
mod tests;

impl From<ClientError> for CriError {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Refused { kind: RequestErrorKind::NotFound, .. } => Code::NotFound,
            ClientError::Deadline { .. }
            | ClientError::Refused { kind: RequestErrorKind::Deadline, .. } => {
                Code::DeadlineExceeded
            }
            ClientError::Refused { kind: RequestErrorKind::Unknown, .. } => Code::Unimplemented,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

/// A pod's supervisor, as long as it can be reached.
#[derive(Debug)]
pub(crate) struct SupervisorConnection {
    pub(crate) client: SupervisorClient,
    pub(crate) pid: u32,
}

/// A supervisor's event, for the task that keeps the records.
#[derive(Debug)]
pub(crate) enum SupervisorEvent {
    Exited(ContainerState),
    /// An event was lost: list again.
    Resync,
    /// The connection has ended, with the reason.
    ConnectionLost(String),
}

impl SupervisorConnection {
    /// Runs the connection; exits of execs go to `execs`, events that must be recorded to `sender`.
    /// That channel is unbounded, since each container exits only once.
    pub(crate) fn run(
        connection: ClientConnection,
        execs: ExecWaiters,
        sender: mpsc::UnboundedSender<SupervisorEvent>,
    ) -> Arc<Self> {
        let ClientConnection { client, mut events, driver, supervisor_pid, .. } = connection;
        let supervisor = Arc::new(Self { client, pid: supervisor_pid });
        tokio::spawn(async move {
            let driving = driver.run();
            let listening = async {
                while let Some(Event { body }) = events.recv().await {
                    match body {
                        Some(EventBody::ExecExited(state)) => execs.ended(&state),
                        Some(EventBody::ContainerExited(state)) => {
                            let _ = sender.send(SupervisorEvent::Exited(state));
                        }
                        // The container's exit contains it, too.
                        Some(EventBody::OutOfMemory(_)) => {}
                        None => {
                            let _ = sender.send(SupervisorEvent::Resync);
                        }
                    }
                }
            };
            // The driver ends first; what it delivered is still read.
            let (reason, ()) = tokio::join!(driving, listening);
            let _ = sender.send(SupervisorEvent::ConnectionLost(reason.to_string()));
        });
        supervisor
    }
}

/// The waiters of one pod's execs; they outlive a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExecWaiters(Arc<Mutex<HashMap<String, ExecWaiter>>>);

#[derive(Debug)]
struct ExecWaiter {
    exit: oneshot::Sender<ProcessExit>,
    /// The supervisor has confirmed that it runs.
    started: bool,
}

impl ExecWaiters {
    fn waiters(&self) -> MutexGuard<'_, HashMap<String, ExecWaiter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call before the exec is started, so that its exit cannot be missed. The receiver gets an
    /// error when the exit is lost.
    pub(crate) fn expect(&self, exec: &str) -> oneshot::Receiver<ProcessExit> {
        let (exit, receiver) = oneshot::channel();
        self.waiters().insert(exec.to_owned(), ExecWaiter { exit, started: false });
        receiver
    }

    /// From now on a supervisor that does not know it has forgotten it.
    pub(crate) fn started(&self, exec: &str) {
        if let Some(waiter) = self.waiters().get_mut(exec) {
            waiter.started = true;
        }
    }

    pub(crate) fn forget(&self, exec: &str) {
        self.waiters().remove(exec);
    }

    fn ended(&self, state: &ExecState) {
        let Some(exit) = state.exit else { return };
        if let Some(waiter) = self.waiters().remove(&state.exec) {
            let _ = waiter.exit.send(exit);
        }
    }

    /// Execs that the supervisor has confirmed as running. Call before requesting the list for
    /// `reconcile`.
    pub(crate) fn started_ids(&self) -> BTreeSet<String> {
        let waiters = self.waiters();
        waiters.iter().filter(|(_, one)| one.started).map(|(name, _)| name.clone()).collect()
    }

    /// After a reconnect: delivers the exits in the supervisor's list. `started_ids` are the execs
    /// that ran before the list was requested; of these the supervisor no longer knows those that
    /// are not in it, so their waiters are dropped and see an error. Execs started since keep
    /// waiting.
    pub(crate) fn reconcile(&self, started_ids: &BTreeSet<String>, known: &[ExecState]) {
        for state in known {
            self.ended(state);
        }
        let known: BTreeSet<&String> = known.iter().map(|state| &state.exec).collect();
        self.waiters().retain(|name, _| !started_ids.contains(name) || known.contains(name));
    }

    /// The supervisor has ended, and all of its execs with it.
    pub(crate) fn fail_all(&self) {
        self.waiters().clear();
    }
}
