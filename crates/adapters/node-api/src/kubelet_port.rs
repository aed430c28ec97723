//! The kubelet's authenticated port (10250).
//!
//! Rule: nothing is answered, a missing path included, before the caller is authenticated and
//! authorized. Health checks, other requests, and the reviews of new callers each have a limit of
//! their own, so that none of them blocks another. Streams (logs, exec, port-forward) and
//! statistics are not here yet. upstream: pkg/kubelet/server

mod access;
pub(crate) mod attributes;
mod credentials;
mod listener;
mod reply;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_server::{HandlerResponse, HttpRequestHandler, Request, ServerLimits, WorkPermits, serve};
use ports::{ClusterApi, KubeletApi, KubeletEndpoint, KubeletEndpointError, PortFuture};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use self::access::AccessControl;
pub use self::access::AuthorizationMode;
use self::credentials::PortCredentials;
use self::listener::{Peer, TlsListener};
use self::reply::{KubeletReply, RequestKind, StaticPages, kind};
use crate::review::{ReviewTimes, Reviews};
use crate::serving_certificate::{TlsSettings, known_suites};

const CONNECTIONS: usize = 512;
/// Tokens are long, and so are the headers that proxies add.
const HEAD_BYTES: usize = 64 * 1024;
const HEALTH_PERMITS: usize = 32;
const QUERY_PERMITS: usize = 64;
/// How often files are checked; only changed ones are read.
const RELOAD_PERIOD: Duration = Duration::from_secs(10);

/// The port's part of the configuration.
#[derive(Debug, Clone)]
pub struct KubeletPortSettings {
    pub address: SocketAddr,
    pub node_name: String,
    pub tls: TlsSettings,
    /// `authentication.webhook.enabled`
    pub reviews_tokens: bool,
    /// `authentication.anonymous.enabled`; ignored without an API server: then no caller is
    /// anonymous.
    pub anonymous: bool,
    pub authorization: AuthorizationMode,
    pub times: ReviewTimes,
    /// `enableDebuggingHandlers`
    pub debugging_handlers: bool,
    /// The KubeletConfiguration in effect, with apiVersion and kind.
    pub configuration: serde_json::Value,
}

/// The port, before it listens.
pub struct KubeletPort {
    settings: KubeletPortSettings,
    api: Option<Arc<dyn ClusterApi>>,
}

/// The port, bound.
pub struct ListeningKubeletPort {
    listener: TcpListener,
    credentials: Arc<PortCredentials>,
    access: AccessControl,
    pages: StaticPages,
}

impl KubeletPort {
    /// `api` reviews callers; `None` on a standalone node.
    pub fn new(settings: KubeletPortSettings, api: Option<Arc<dyn ClusterApi>>) -> Self {
        Self { settings, api }
    }

    /// Loads the certificate and binds the address.
    ///
    /// # Errors
    /// If a file cannot be used or the address cannot be bound.
    pub async fn listen(&self) -> Result<ListeningKubeletPort, KubeletEndpointError> {
        let settings = &self.settings;
        let tls = usable_suites(settings.tls.clone());
        let loaded = spawn_blocking(move || PortCredentials::load(tls)).await;
        let loaded = loaded.unwrap_or_else(|error| Err(error.to_string()));
        let credentials =
            Arc::new(loaded.map_err(|cause| KubeletEndpointError::Credentials { cause })?);
        let listen = |error: std::io::Error| KubeletEndpointError::Listen {
            address: self.address(),
            cause: error.to_string(),
        };
        let listener = TcpListener::bind(settings.address).await.map_err(listen)?;
        let configz = serde_json::json!({"kubeletconfig": settings.configuration}).to_string();
        Ok(ListeningKubeletPort {
            listener,
            credentials: credentials.clone(),
            access: AccessControl {
                credentials,
                reviews: Reviews::new(self.api.clone(), self.api.clone(), settings.times),
                tokens: settings.reviews_tokens,
                anonymous: settings.anonymous && self.api.is_some(),
                mode: settings.authorization,
                node: settings.node_name.clone(),
            },
            pages: StaticPages {
                configz: Bytes::from(configz),
                debugging_handlers: settings.debugging_handlers,
            },
        })
    }
}

/// Unknown suites are skipped, so that a hardening guide's list can be used.
fn usable_suites(tls: TlsSettings) -> TlsSettings {
    let (known, unknown) = known_suites(&tls.cipher_suites);
    if unknown.is_empty() {
        return tls;
    }
    let unknown = unknown.join(",");
    // An empty list would mean all of them.
    let tls13_only = tls.tls13_only || known.is_empty();
    warn!(tls_cipher_suites = unknown, tls13_only, "Cipher suites that are not offered");
    TlsSettings { tls13_only, cipher_suites: known, ..tls }
}

impl KubeletEndpoint for KubeletPort {
    fn address(&self) -> String {
        self.settings.address.to_string()
    }

    fn serve(&self, api: KubeletApi) -> PortFuture<'_, KubeletEndpointError> {
        Box::pin(async move {
            match self.listen().await {
                Ok(listening) => {
                    listening.serve(api, std::future::pending()).await;
                    KubeletEndpointError::Ended { address: self.address() }
                }
                Err(error) => error,
            }
        })
    }
}

impl ListeningKubeletPort {
    /// The address, with the port that the kernel chose if it was 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until `end`, and then finishes the requests in flight.
    pub async fn serve(self, api: KubeletApi, end: impl Future<Output = ()>) {
        let Self { listener, credentials, access, pages } = self;
        if let Ok(address) = listener.local_addr() {
            info!(address = %address.ip(), port = address.port(), "Starting to listen");
        }
        let limits = ServerLimits {
            connections: CONNECTIONS,
            head_bytes: HEAD_BYTES,
            ..ServerLimits::default()
        };
        let requests = KubeletPortHandler {
            access,
            pages,
            api,
            health: WorkPermits::new(HEALTH_PERMITS),
            queries: WorkPermits::new(QUERY_PERMITS),
        };
        let listener = TlsListener { listener, credentials: credentials.clone() };
        let reloads = async {
            let mut reload_tick = interval(RELOAD_PERIOD);
            reload_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                reload_tick.tick().await;
                let credentials = credentials.clone();
                // A panic in it is logged as any other; the old credentials stay in use.
                let _ = spawn_blocking(move || credentials.reload()).await;
            }
        };
        tokio::select! {
            () = serve(listener, Arc::new(requests), limits, end) => {}
            () = reloads => {}
        }
    }
}

struct KubeletPortHandler {
    access: AccessControl,
    pages: StaticPages,
    api: KubeletApi,
    health: WorkPermits,
    queries: WorkPermits,
}

impl HttpRequestHandler<Peer> for KubeletPortHandler {
    async fn answer(&self, peer: &Peer, request: Request) -> HandlerResponse {
        let (head, _) = request.into_parts();
        let path = attributes::decoded(head.uri.path());
        let method = head.method.as_str();
        let checked = self.access.check(&peer.certificates, &head.headers, method, &path).await;
        if let Err(reply) = checked {
            return HandlerResponse::new(reply.into_response());
        }
        let permits = match kind(&path) {
            RequestKind::Health => &self.health,
            RequestKind::Query => &self.queries,
        };
        let Some(permit) = permits.try_acquire() else {
            return HandlerResponse::new(KubeletReply::too_many().into_response());
        };
        let query = head.uri.query().unwrap_or_default();
        let reply = self.pages.reply(&self.api, method, &path, query);
        HandlerResponse::new(reply.into_response()).with_permit(permit)
    }
}

#[cfg(test)]
mod tests;
