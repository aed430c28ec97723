//! The connection to a pod's supervisor: calls, and the events that it sends.
//!
//! Rule: receiving events never waits for a disk. When the connection ends, its owner checks
//! whether the supervisor still lives; waiters of execs go on waiting until that is known, and then
//! get their exits over the next connection. The waiter of a lost exit gets an error.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pod_supervisor::protocol::{ContainerState, Event, ExecState, Exit, FailureKind, Happened};
use pod_supervisor::{Client, ClientError, Connection};
use tokio::sync::{mpsc, oneshot};
use tonic::Code;

use crate::failure::Failure;

#[cfg(test)]
mod tests;

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Refused { kind: FailureKind::NotFound, .. } => Code::NotFound,
            ClientError::Deadline { .. }
            | ClientError::Refused { kind: FailureKind::Deadline, .. } => Code::DeadlineExceeded,
            ClientError::Refused { kind: FailureKind::Unknown, .. } => Code::Unimplemented,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

/// A pod's supervisor, as long as it can be reached.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) client: Client,
    pub(crate) pid: u32,
}

/// A supervisor's event, for the task that keeps the records.
#[derive(Debug)]
pub(crate) enum Told {
    Exited(ContainerState),
    /// An event was lost: list again.
    LookAgain,
    /// The connection has ended, with the reason.
    Gone(String),
}

impl Supervisor {
    /// Runs the connection; exits of execs go to `execs`, events that must be recorded to `told`.
    /// That channel is unbounded, since each container exits only once.
    pub(crate) fn run(
        connection: Connection,
        execs: Execs,
        told: mpsc::UnboundedSender<Told>,
    ) -> Arc<Self> {
        let Connection { client, mut events, driver, supervisor_pid, .. } = connection;
        let supervisor = Arc::new(Self { client, pid: supervisor_pid });
        tokio::spawn(async move {
            let driving = driver.run();
            let listening = async {
                while let Some(Event { happened }) = events.recv().await {
                    match happened {
                        Some(Happened::ExecExited(state)) => execs.ended(&state),
                        Some(Happened::ContainerExited(state)) => {
                            let _ = told.send(Told::Exited(state));
                        }
                        // The container's exit contains it, too.
                        Some(Happened::OutOfMemory(_)) => {}
                        None => {
                            let _ = told.send(Told::LookAgain);
                        }
                    }
                }
            };
            // The driver ends first; what it delivered is still read.
            let (why, ()) = tokio::join!(driving, listening);
            let _ = told.send(Told::Gone(why.to_string()));
        });
        supervisor
    }
}

/// The waiters of one pod's execs; they outlive a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Execs(Arc<Mutex<HashMap<String, Waiter>>>);

#[derive(Debug)]
struct Waiter {
    exit: oneshot::Sender<Exit>,
    /// The supervisor has confirmed that it runs.
    started: bool,
}

impl Execs {
    fn waiters(&self) -> MutexGuard<'_, HashMap<String, Waiter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call before the exec is started, so that its exit cannot be missed. The receiver gets an
    /// error when the exit is lost.
    pub(crate) fn expect(&self, exec: &str) -> oneshot::Receiver<Exit> {
        let (exit, receiver) = oneshot::channel();
        self.waiters().insert(exec.to_owned(), Waiter { exit, started: false });
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
    /// `settle`.
    pub(crate) fn running(&self) -> BTreeSet<String> {
        let waiters = self.waiters();
        waiters.iter().filter(|(_, one)| one.started).map(|(name, _)| name.clone()).collect()
    }

    /// After a reconnect: delivers the exits in the supervisor's list. `running` are the execs that
    /// ran before the list was requested; of these the supervisor no longer knows those that are
    /// not in it, so their waiters are dropped and see an error. Execs started since keep waiting.
    pub(crate) fn settle(&self, running: &BTreeSet<String>, known: &[ExecState]) {
        for state in known {
            self.ended(state);
        }
        let known: BTreeSet<&String> = known.iter().map(|state| &state.exec).collect();
        self.waiters().retain(|name, _| !running.contains(name) || known.contains(name));
    }

    /// The supervisor has ended, and all of its execs with it.
    pub(crate) fn give_up(&self) {
        self.waiters().clear();
    }
}
