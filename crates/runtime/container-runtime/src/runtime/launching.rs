//! Starts, connects to and ends a pod's supervisor.
//!
//! Rule: ending a supervisor ends the existing process, whether or not there is a connection to it;
//! a supervisor that cannot be reached does not count as ended.

use std::sync::Arc;
use std::time::Duration;

use pod_supervisor::{Client, Connection};
use tokio::sync::mpsc;

use super::Runtime;
use crate::book::Sandbox;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::settings::CgroupDriver;
use crate::supervision::Supervisor;

/// The cgroup of all supervisors of this root, below the root's own: not the server's, since
/// supervisors must outlive the server.
const SUPERVISORS: &str = "supervisors";
/// The same with systemd: each supervisor, of any root, has a scope there.
const SUPERVISORS_SLICE: &str = "keelson-supervisors.slice";
/// First pause before retrying to reach a supervisor that lives and does not answer.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often the connection may end while a supervisor is being ended.
const MOST_TRIES: usize = 3;

pub(super) fn pause_after(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

impl Runtime {
    /// Starts a supervisor for a new sandbox.
    pub(super) async fn launch(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<Supervisor>> {
        let folder = self.pod_folder(&sandbox.id);
        let (launched, runtime) = (folder.clone(), self.clone());
        let group = match self.settings.cgroup_driver {
            CgroupDriver::Cgroupfs => format!("{}/{SUPERVISORS}", self.names.cgroups),
            CgroupDriver::Systemd => {
                format!("{SUPERVISORS_SLICE}:keelson-pod-{}.scope", sandbox.id)
            }
        };
        blocking(move || {
            crate::durable::make_folder(&launched)?;
            runtime
                .program
                .launch(&launched, Some(&group))
                .map_err(|error| Failure::plain(error.to_string()))
        })
        .await
        .doing("starting the pod's supervisor")?;
        let connection = Client::connect(&folder).await.doing("connecting to a new supervisor")?;
        Ok(self.take_up(sandbox, connection))
    }

    /// Connects to the supervisor of a sandbox, if it lives. If it does not answer, waits for it:
    /// its containers run, and must not be recorded as lost.
    pub(super) async fn reconnect(&self, sandbox: &Arc<Sandbox>) -> Option<Arc<Supervisor>> {
        let folder = self.pod_folder(&sandbox.id);
        let mut pause = FIRST_PAUSE;
        loop {
            match Client::connect(&folder).await {
                Ok(connection) => return Some(self.take_up(sandbox, connection)),
                Err(error) if error.is_nobody() => {
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
    pub(super) async fn end_supervisor(&self, sandbox: &Arc<Sandbox>) -> Result<bool> {
        for _ in 0..MOST_TRIES {
            let supervisor = match sandbox.supervisor() {
                Some(supervisor) => supervisor,
                None => match Client::connect(&self.pod_folder(&sandbox.id)).await {
                    Ok(connection) => self.take_up(sandbox, connection),
                    Err(error) if error.is_nobody() => {
                        sandbox.set_supervisor(None);
                        return Ok(false);
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            match supervisor.client.shutdown().await {
                Err(error) if error.is_gone() => {}
                outcome => {
                    outcome?;
                    sandbox.set_supervisor(None);
                    return Ok(true);
                }
            }
        }
        Err(Failure::plain(format!("the supervisor of sandbox {:?} does not end", sandbox.id)))
    }

    pub(super) fn take_up(
        &self,
        sandbox: &Arc<Sandbox>,
        connection: Connection,
    ) -> Arc<Supervisor> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor::run(connection, sandbox.execs.clone(), sender);
        sandbox.set_supervisor(Some(Arc::clone(&supervisor)));
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move { runtime.listen(&sandbox, receiver).await });
        supervisor
    }
}
