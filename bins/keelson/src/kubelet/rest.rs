//! Detects that the agent is at rest: from the same changes that the local API reports.

use std::sync::Arc;

use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint};

use crate::rest::{Changes, Rest};

/// The changes of the local API.
struct Told(Arc<dyn LocalApi>);

impl Changes for Told {
    async fn beyond(&mut self, seen: u64) -> u64 {
        self.0.changed(seen).await
    }
}

/// Serves the local API, and notices when there is nothing to report.
pub(super) struct RestingEndpoint {
    pub(super) local: Arc<dyn LocalEndpoint>,
    pub(super) rest: Rest,
}

impl LocalEndpoint for RestingEndpoint {
    fn address(&self) -> String {
        self.local.address()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            tokio::select! {
                why = self.local.serve(api.clone()) => why,
                never = self.rest.after_work(Told(api.clone())) => match never {},
            }
        })
    }
}
