//! The connection to a pod's supervisor: calls, and what it tells by itself.
//!
//! Rule: exits arrive here and are written before anybody who waits for them is told. When the
//! connection ends, whoever waits for an exec learns that it has; the pod's containers are looked
//! at again by whoever made the connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pod_supervisor::protocol::{Event, Exit, FailureKind, Happened};
use pod_supervisor::{Client, ClientError, Connection};
use tokio::sync::{mpsc, oneshot};
use tonic::Code;

use crate::failure::Failure;

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
    execs: Execs,
}

type Execs = Arc<Mutex<HashMap<String, oneshot::Sender<Exit>>>>;

/// What a supervisor told, for whoever keeps the records.
#[derive(Debug)]
pub(crate) enum Told {
    Happened(Happened),
    /// The connection has ended, with the reason.
    Gone(String),
}

impl Supervisor {
    /// Runs the connection; everything but exits of execs goes to `told`.
    pub(crate) fn run(connection: Connection, told: mpsc::Sender<Told>) -> Arc<Self> {
        let Connection { client, mut events, driver, supervisor_pid, .. } = connection;
        let execs = Execs::default();
        let supervisor = Arc::new(Self { client, pid: supervisor_pid, execs: Arc::clone(&execs) });
        tokio::spawn(async move {
            let driving = driver.run();
            let listening = async {
                while let Some(Event { happened }) = events.recv().await {
                    match happened {
                        Some(Happened::ExecExited(state)) => {
                            let waiter = lock(&execs).remove(&state.exec);
                            if let (Some(waiter), Some(exit)) = (waiter, state.exit) {
                                let _ = waiter.send(exit);
                            }
                        }
                        Some(other) => {
                            let _ = told.send(Told::Happened(other)).await;
                        }
                        None => {}
                    }
                }
            };
            // The driver ends first; what it delivered is still read.
            let (why, ()) = tokio::join!(driving, listening);
            lock(&execs).clear();
            let _ = told.send(Told::Gone(why.to_string())).await;
        });
        supervisor
    }

    /// To be called before the exec is started, so that its exit cannot be missed.
    pub(crate) fn expect_exec(&self, exec: &str) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.execs).insert(exec.to_owned(), sender);
        receiver
    }

    pub(crate) fn forget_exec(&self, exec: &str) {
        lock(&self.execs).remove(exec);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
