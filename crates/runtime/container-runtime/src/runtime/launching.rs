//! Starting a pod's supervisor and connecting to it.

use std::sync::Arc;

use pod_supervisor::{Client, Connection};
use tokio::sync::mpsc;

use super::Runtime;
use crate::book::Sandbox;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::supervision::Supervisor;

/// The group of all supervisors: not the server's own, whose end must not be theirs.
const SUPERVISORS: &str = "/keelson/supervisors";
/// Events of one pod that may wait to be written.
const QUEUE: usize = 64;

impl Runtime {
    /// Starts a supervisor for a new sandbox.
    pub(super) async fn launch(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<Supervisor>> {
        let folder = self.pod_folder(&sandbox.id);
        let (launched, runtime) = (folder.clone(), self.clone());
        blocking(move || {
            crate::durable::make_folder(&launched)?;
            runtime
                .program
                .launch(&launched, Some(SUPERVISORS))
                .map_err(|error| Failure::plain(error.to_string()))
        })
        .await
        .doing("starting the pod's supervisor")?;
        let connection = Client::connect(&folder).await.doing("connecting to a new supervisor")?;
        Ok(self.take_up(sandbox, connection))
    }

    /// Connects to the supervisor of a sandbox, if it lives.
    pub(super) async fn reconnect(&self, sandbox: &Arc<Sandbox>) -> Option<Arc<Supervisor>> {
        match Client::connect(&self.pod_folder(&sandbox.id)).await {
            Ok(connection) => Some(self.take_up(sandbox, connection)),
            Err(error) => {
                tracing::debug!(sandbox = sandbox.id, %error, "no supervisor");
                None
            }
        }
    }

    fn take_up(&self, sandbox: &Arc<Sandbox>, connection: Connection) -> Arc<Supervisor> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let supervisor = Supervisor::run(connection, sender);
        sandbox.set_supervisor(Some(Arc::clone(&supervisor)));
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move { runtime.listen(&sandbox, receiver).await });
        supervisor
    }
}
