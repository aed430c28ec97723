//! The controller's pages: health, metrics, explanations.
//!
//! Rule: routes only. The controller provides the content, the listener the authorization.
//! Explanations are for the local socket; the secure port does not have them.

use node_api::{Page, PageRequest, Pages};
use node_controller::NodeController;
use ports::{HealthCheck, HealthChecks, PortFuture, metrics};
use std::sync::Arc;

/// What the secure port shows.
pub(super) struct PublicPages(pub(super) NodeController);

/// What the local socket shows.
pub(super) struct LocalPages(pub(super) NodeController);

/// One check as it was when it was read.
struct CheckResult {
    name: String,
    outcome: Result<(), String>,
}

impl HealthCheck for CheckResult {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        self.outcome.clone()
    }
}

fn checks(controller: &NodeController) -> HealthChecks {
    let states = controller.health().into_iter().map(|state| {
        let outcome = state.problem.map_or(Ok(()), Err);
        Arc::new(CheckResult { name: state.name, outcome }) as Arc<dyn HealthCheck>
    });
    let ping = Arc::new(CheckResult { name: "ping".to_owned(), outcome: Ok(()) });
    let all = std::iter::once(ping as Arc<dyn HealthCheck>).chain(states);
    all.collect::<Vec<_>>().into()
}

fn public(controller: &NodeController, request: &PageRequest) -> Page {
    if request.path == "/metrics" {
        let body = metrics::text(controller.metrics());
        return Page { status: 200, content_type: metrics::CONTENT_TYPE, body };
    }
    let health = ["healthz", "livez", "readyz"]
        .into_iter()
        .find_map(|name| Page::health(name, request, &checks(controller)));
    health.unwrap_or_else(Page::not_found)
}

impl Pages for PublicPages {
    fn answer<'a>(&'a self, request: &'a PageRequest) -> PortFuture<'a, Page> {
        Box::pin(async move { public(&self.0, request) })
    }
}

impl Pages for LocalPages {
    fn answer<'a>(&'a self, request: &'a PageRequest) -> PortFuture<'a, Page> {
        Box::pin(async move {
            match request.path.strip_prefix("/explain/") {
                Some(node) => Page::text(200, self.0.explain(node).await.to_string()),
                None => public(&self.0, request),
            }
        })
    }
}
