//! Starts, connects to and ends a pod's supervisor.
//!
//! Rule: ending a supervisor ends the existing process, whether or not there is a connection to it;
//! a supervisor that cannot be reached does not count as ended.

use std::sync::Arc;
use std::time::Duration;

use pod_supervisor::{ClientConnection, SupervisorClient};
use tokio::sync::mpsc;

use super::Runtime;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::record_store::Sandbox;
use crate::settings::CgroupDriver;
use crate::supervision::SupervisorConnection;

/// The cgroup of all supervisors of this root, below the root's own: not the server's, since
/// supervisors must outlive the server.
const SUPERVISORS: &str = "supervisors";
/// The same with systemd: each supervisor, of any root, has a scope there.
const SUPERVISORS_SLICE: &str = "keelson-supervisors.slice";
/// First pause before retrying to reach a supervisor that lives and does not answer.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How often the connection may end while a supervisor is being ended.
const MAX_ATTEMPTS: usize = 3;

pub(super) fn pause_after(pause: Duration) -> Duration {
    (pause * 2).min(MAX_PAUSE)
}

impl Runtime {
    /// Starts a supervisor for a new sandbox.
    pub(super) async fn launch(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<SupervisorConnection>> {
        let dir = self.pod_dir(&sandbox.id);
        let (launched, runtime) = (dir.clone(), self.clone());
        let group = match self.settings.cgroup_driver {
            CgroupDriver::Cgroupfs => format!("{}/{SUPERVISORS}", self.names.cgroups),
            CgroupDriver::Systemd => {
                format!("{SUPERVISORS_SLICE}:keelson-pod-{}.scope", sandbox.id)
            }
        };
        blocking(move || {
            crate::durable::make_dir(&launched)?;
            runtime
                .program
                .launch(&launched, Some(&group))
                .map_err(|error| CriError::plain(error.to_string()))
        })
        .await
        .doing("starting the pod's supervisor")?;
        let connection =
            SupervisorClient::connect(&dir).await.doing("connecting to a new supervisor")?;
        Ok(self.attach_connection(sandbox, connection))
    }

    /// Connects to the supervisor of a sandbox, if it lives. If it does not answer, waits for it:
    /// its containers run, and must not be recorded as lost.
    pub(super) async fn reconnect(
        &self,
        sandbox: &Arc<Sandbox>,
    ) -> Option<Arc<SupervisorConnection>> {
        let dir = self.pod_dir(&sandbox.id);
        let mut pause = FIRST_PAUSE;
        loop {
            match SupervisorClient::connect(&dir).await {
                Ok(connection) => return Some(self.attach_connection(sandbox, connection)),
                Err(error) if error.is_not_listening() => {
                    tracing::debug!(sandbox = sandbox.id, %error, "no supervisor");
                    return None;
                }
                Err(error) => {
                    tracing::warn!(sandbox = sandbox.id, %error, "the supervisor does not answer");
                }
            }
            tokio::time::sleep(pause).await;
            pause = pause_after(pause);
        }
    }

    /// Ends the pod's supervisor. False: there was none.
    pub(super) async fn stop_supervisor(&self, sandbox: &Arc<Sandbox>) -> Result<bool> {
        for _ in 0..MAX_ATTEMPTS {
            let supervisor = match sandbox.supervisor() {
                Some(supervisor) => supervisor,
                None => match SupervisorClient::connect(&self.pod_dir(&sandbox.id)).await {
                    Ok(connection) => self.attach_connection(sandbox, connection),
                    Err(error) if error.is_not_listening() => {
                        sandbox.set_supervisor(None);
                        return Ok(false);
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            match supervisor.client.shutdown().await {
                Err(error) if error.is_disconnected() => {}
                outcome => {
                    outcome?;
                    sandbox.set_supervisor(None);
                    return Ok(true);
                }
            }
        }
        Err(CriError::plain(format!("the supervisor of sandbox {:?} does not end", sandbox.id)))
    }

    pub(super) fn attach_connection(
        &self,
        sandbox: &Arc<Sandbox>,
        connection: ClientConnection,
    ) -> Arc<SupervisorConnection> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let supervisor = SupervisorConnection::run(connection, sandbox.execs.clone(), sender);
        sandbox.set_supervisor(Some(Arc::clone(&supervisor)));
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move { runtime.handle_supervisor_events(&sandbox, receiver).await });
        supervisor
    }
}
