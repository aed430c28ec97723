//! The kubelet's read-only port (10255), which is off by default.
//!
//! Rule: every client that reaches it may read health, pods and metrics, as in upstream; nothing else is
//! there. Its connections and requests have limits of their own.

use std::net::SocketAddr;
use std::sync::Arc;

use http_server::{HandlerResponse, HttpRequestHandler, Request, ServerLimits, WorkPermits, serve};
use ports::KubeletApi;
use tokio::net::TcpListener;
use tracing::info;

use super::attributes;
use super::reply::{KubeletReply, StaticPages};
use super::request_metrics::PortRequestMetrics;

const CONNECTIONS: usize = 64;
const REQUEST_PERMITS: usize = 32;

/// Answers without authorization.
pub(super) struct ReadOnlyHandler {
    pages: StaticPages,
    metrics: Arc<PortRequestMetrics>,
    api: KubeletApi,
    permits: WorkPermits,
}

impl ReadOnlyHandler {
    pub(super) fn new(
        pages: &StaticPages,
        metrics: &Arc<PortRequestMetrics>,
        api: KubeletApi,
    ) -> Self {
        let pages = StaticPages { debugging_handlers: false, ..pages.clone() };
        let permits = WorkPermits::new(REQUEST_PERMITS);
        Self { pages, metrics: metrics.clone(), api, permits }
    }
}

/// Serves for ever, also without a listener.
pub(super) async fn serve_read_only(listener: Option<TcpListener>, handler: ReadOnlyHandler) {
    let Some(listener) = listener else { return std::future::pending().await };
    if let Ok(address) = listener.local_addr() {
        info!(address = %address.ip(), port = address.port(), "Starting to listen read-only");
    }
    let limits = ServerLimits { connections: CONNECTIONS, ..ServerLimits::default() };
    serve(listener, Arc::new(handler), limits, std::future::pending()).await;
}

impl HttpRequestHandler<SocketAddr> for ReadOnlyHandler {
    async fn answer(&self, _: &SocketAddr, request: Request) -> HandlerResponse {
        let uri = request.uri();
        let (method, path) = (request.method().as_str(), attributes::decoded(uri.path()));
        let in_flight = self.metrics.begin(method, &path, "readonly");
        let Some(permit) = self.permits.try_acquire() else {
            let reply = KubeletReply::too_many().into_response();
            return HandlerResponse::new(reply).holding(in_flight);
        };
        let reply = self.pages.reply(&self.api, method, &path, uri.query().unwrap_or_default());
        HandlerResponse::new(reply.into_response()).with_permit(permit).holding(in_flight)
    }
}
