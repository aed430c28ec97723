//! An agent at rest holds little: when nothing has changed for a while, the pages of its program that
//! only work needed are given back.
//!
//! Rule: follows the same changes that people at the machine are told; wakes for nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use host_process::program_pages;
use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint};
use tokio::time::timeout;
use tracing::{info, warn};

/// So long after the last change the work counts as done.
const QUIET: Duration = Duration::from_secs(20);

/// Serves the agent to people at this machine, and notices when there is nothing to tell them.
pub(super) struct RestingEndpoint(pub(super) Arc<dyn LocalEndpoint>);

impl LocalEndpoint for RestingEndpoint {
    fn address(&self) -> String {
        self.0.address()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            tokio::select! {
                why = self.0.serve(api.clone()) => why,
                why = rest_after_work(api.as_ref()) => why,
            }
        })
    }
}

async fn rest_after_work(api: &dyn LocalApi) -> String {
    let mut seen = 0;
    loop {
        while let Ok(newer) = timeout(QUIET, api.changed(seen)).await {
            seen = newer;
        }
        match program_pages::give_back(Path::new("/proc/self")) {
            Ok(bytes) => info!(v = 4, bytes, "Nothing to do; program pages given back"),
            Err(refused) => {
                warn!(err = %refused, "Program pages stay in memory");
                std::future::pending::<()>().await;
            }
        }
        seen = api.changed(seen).await;
    }
}
