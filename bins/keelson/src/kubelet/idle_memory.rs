//! Releases memory when the agent is idle: when the local API has reported no change for a while.

use std::sync::Arc;

use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint};

use crate::idle_memory::{ChangeCounter, IdleMemory};

/// Counts the changes that the local API reports.
struct AgentChanges(Arc<dyn LocalApi>);

impl ChangeCounter for AgentChanges {
    async fn wait_beyond(&mut self, seen: u64) -> u64 {
        self.0.changed(seen).await
    }
}

/// Serves the local API, and releases memory while it reports no changes.
pub(super) struct IdleEndpoint {
    pub(super) local: Arc<dyn LocalEndpoint>,
    pub(super) idle_memory: IdleMemory,
}

impl LocalEndpoint for IdleEndpoint {
    fn address(&self) -> String {
        self.local.address()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            tokio::select! {
                reason = self.local.serve(api.clone()) => reason,
                never = self.idle_memory.trim_when_idle(AgentChanges(api.clone())) => {
                    match never {}
                }
            }
        })
    }
}
