//! The kubelet's authenticated port (10250), and its read-only port (10255) where it is configured.
//!
//! Rule: nothing is answered, a missing path included, before the caller is authenticated and
//! authorized. Health checks, pages, logs, streams, commands and the reviews of new callers each
//! have a limit of their own, so that none of them blocks another. Statistics are not here yet.
//! upstream: pkg/kubelet/server

mod access;
pub(crate) mod attributes;
mod commands;
mod credentials;
mod listener;
mod log_request;
mod log_status;
mod log_text;
mod logs;
mod pods;
mod query;
mod read_only;
mod relay;
mod reply;
mod request_metrics;
mod route;
mod streams;
mod system_logs;
mod upgrade;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_server::{HandlerResponse, HttpRequestHandler, Request, ServerLimits, WorkPermits, serve};
use hyper::http::request::Parts;
use ports::kubelet_endpoint::container_log_reader::ContainerLogReader;
use ports::{
    ClusterApi, KubeletApi, KubeletEndpoint, KubeletEndpointError, LocalRuntime, MetricSource,
    PortFuture,
};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use self::access::AccessControl;
pub use self::access::AuthorizationMode;
use self::commands::PortCommands;
use self::credentials::PortCredentials;
use self::listener::{Peer, TlsListener};
use self::logs::PortLogs;
use self::read_only::ReadOnlyHandler;
pub use self::reply::DisabledHandler;
use self::reply::{KubeletReply, RequestKind, StaticPages, kind};
use self::request_metrics::PortRequestMetrics;
use self::route::{PortRoute, route};
use self::streams::{PortStreams, StreamRoute};
use self::system_logs::{SystemLogs, moved};
use crate::health_counts::HealthCheckCounts;
use crate::review::{ReviewTimes, Reviews};
use crate::serving_certificate::{TlsSettings, known_suites};

/// More than the requests of all kinds that are allowed at the same time.
const CONNECTIONS: usize = 768;
/// Tokens are long, and so are the headers that proxies add.
const HEAD_BYTES: usize = 64 * 1024;
const HEALTH_PERMITS: usize = 32;
const QUERY_PERMITS: usize = 64;
/// For a response that is in memory, until the client has read it.
const PAGE_TIME: Duration = Duration::from_secs(60);
/// For a command to end. upstream: the server's WriteTimeout
const WORK_TIME: Duration = Duration::from_hours(4);
/// How often files are checked; only changed ones are read.
const RELOAD_PERIOD: Duration = Duration::from_secs(10);

/// The port's part of the configuration.
#[derive(Debug, Clone)]
pub struct KubeletPortSettings {
    pub address: SocketAddr,
    /// Of the read-only port, which is served without TLS and authorization.
    pub read_only: Option<SocketAddr>,
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
    /// Those of the debugging handlers that have a switch of their own.
    pub disabled_handlers: Vec<DisabledHandler>,
    /// The directory of the node's logs.
    pub log_dir: PathBuf,
    /// `streamingConnectionIdleTimeout`; zero for none.
    pub stream_idle: Duration,
    /// The directory of checkpoints.
    pub checkpoint_dir: PathBuf,
    /// The KubeletConfiguration in effect, with apiVersion and kind.
    pub configuration: serde_json::Value,
}

/// The port, before it listens.
pub struct KubeletPort {
    settings: KubeletPortSettings,
    api: Option<Arc<dyn ClusterApi>>,
    runtime: Option<Arc<dyn LocalRuntime>>,
    logs: Option<Arc<dyn ContainerLogReader>>,
    health: Arc<HealthCheckCounts>,
    metrics: Arc<PortRequestMetrics>,
}

/// The port, bound.
pub struct ListeningKubeletPort {
    listener: TcpListener,
    read_only: Option<TcpListener>,
    credentials: Arc<PortCredentials>,
    handlers: PortHandlers,
}

impl KubeletPort {
    /// `api` reviews callers; `None` on a standalone node.
    pub fn new(settings: KubeletPortSettings, api: Option<Arc<dyn ClusterApi>>) -> Self {
        let (health, metrics) = (Arc::default(), Arc::default());
        Self { settings, api, runtime: None, logs: None, health, metrics }
    }

    /// With exec, attach, port-forward, run and checkpoint.
    #[must_use]
    pub fn with_runtime(self, runtime: Arc<dyn LocalRuntime>) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// With the logs of containers.
    #[must_use]
    pub fn with_logs(self, logs: Arc<dyn ContainerLogReader>) -> Self {
        Self { logs: Some(logs), ..self }
    }

    /// Counts the results of health checks there.
    #[must_use]
    pub fn with_health_counts(self, health: Arc<HealthCheckCounts>) -> Self {
        Self { health, ..self }
    }

    /// The metrics of its requests.
    pub fn metrics(&self) -> Arc<dyn MetricSource> {
        self.metrics.clone()
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
        let listener = bind(settings.address).await?;
        let read_only = match settings.read_only {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let handlers = self.handlers(credentials.clone());
        Ok(ListeningKubeletPort { listener, read_only, credentials, handlers })
    }

    fn handlers(&self, credentials: Arc<PortCredentials>) -> PortHandlers {
        let settings = &self.settings;
        let configz = serde_json::json!({"kubeletconfig": settings.configuration}).to_string();
        PortHandlers {
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
                disabled: settings.disabled_handlers.clone(),
                health: self.health.clone(),
            },
            metrics: self.metrics.clone(),
            system_logs: SystemLogs::new(settings.log_dir.clone()),
            logs: PortLogs::new(self.logs.clone()),
            streams: PortStreams::new(self.runtime.clone(), settings.stream_idle),
            commands: PortCommands::new(self.runtime.clone(), settings.checkpoint_dir.clone()),
            health: WorkPermits::new(HEALTH_PERMITS),
            queries: WorkPermits::new(QUERY_PERMITS),
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, KubeletEndpointError> {
    TcpListener::bind(address).await.map_err(|error| KubeletEndpointError::Listen {
        address: address.to_string(),
        cause: error.to_string(),
    })
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

    /// The same of the read-only port.
    pub fn read_only_address(&self) -> Option<SocketAddr> {
        self.read_only.as_ref()?.local_addr().ok()
    }

    /// Serves until `end`, and then finishes the requests in flight.
    pub async fn serve(self, api: KubeletApi, end: impl Future<Output = ()>) {
        let Self { listener, read_only, credentials, handlers } = self;
        if let Ok(address) = listener.local_addr() {
            info!(address = %address.ip(), port = address.port(), "Starting to listen");
        }
        let limits = ServerLimits {
            connections: CONNECTIONS,
            head_bytes: HEAD_BYTES,
            response_timeout: WORK_TIME,
            ..ServerLimits::default()
        };
        let read_only = read_only::serve_read_only(
            read_only,
            ReadOnlyHandler::new(&handlers.pages, &handlers.metrics, api.clone()),
        );
        let requests = KubeletPortHandler { handlers, api };
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
            () = read_only => {}
        }
    }
}

/// Answers the requests of each kind.
struct PortHandlers {
    access: AccessControl,
    pages: StaticPages,
    logs: PortLogs,
    streams: PortStreams,
    commands: PortCommands,
    system_logs: SystemLogs,
    metrics: Arc<PortRequestMetrics>,
    health: WorkPermits,
    queries: WorkPermits,
}

struct KubeletPortHandler {
    handlers: PortHandlers,
    api: KubeletApi,
}

impl HttpRequestHandler<Peer> for KubeletPortHandler {
    async fn answer(&self, peer: &Peer, request: Request) -> HandlerResponse {
        let (head, _) = request.into_parts();
        let path = attributes::decoded(head.uri.path());
        let method = head.method.as_str();
        let in_flight = self.handlers.metrics.begin(method, &path, "readwrite");
        let access = &self.handlers.access;
        let checked = access.check(&peer.certificates, &head.headers, method, &path).await;
        let answered = match checked {
            Ok(()) => self.authorized(&head, &path).await,
            Err(reply) => Err(reply),
        };
        answered.unwrap_or_else(page).holding(in_flight)
    }
}

impl KubeletPortHandler {
    /// The answer to a caller that may do this; `path` is decoded.
    async fn authorized(&self, head: &Parts, path: &str) -> Result<HandlerResponse, KubeletReply> {
        let (method, query) = (head.method.as_str(), head.uri.query().unwrap_or_default());
        let PortHandlers { pages, logs, streams, commands, system_logs, .. } = &self.handlers;
        let local = &self.api.local;
        if let Some(disabled) = pages.disabled(path) {
            return Err(disabled);
        }
        let route = pages.debugging_handlers.then(|| route(method, path)).flatten();
        let stream = |route| streams.answer(&**local, route, head);
        match route.transpose()? {
            Some(PortRoute::ContainerLogs(path)) => logs.answer(local, path, query).await,
            Some(PortRoute::Exec(path)) => stream(StreamRoute::Exec(path)).await,
            Some(PortRoute::Attach(path)) => stream(StreamRoute::Attach(path)).await,
            Some(PortRoute::PortForward(path)) => stream(StreamRoute::PortForward(path)).await,
            Some(PortRoute::Run(path)) => commands.run(&**local, path, query).await.map(page),
            Some(PortRoute::Checkpoint(path)) => {
                commands.checkpoint(&**local, path, query).await.map(page)
            }
            // Upstream's router adds the slash.
            Some(PortRoute::SystemLogs("")) if path == "/logs" => Ok(moved("/logs/")),
            Some(PortRoute::SystemLogs(path)) => system_logs.answer(path).await,
            None => self.page(method, path, query),
        }
    }

    fn page(&self, method: &str, path: &str, query: &str) -> Result<HandlerResponse, KubeletReply> {
        let permits = match kind(path) {
            RequestKind::Health => &self.handlers.health,
            RequestKind::Query => &self.handlers.queries,
        };
        let permit = permits.try_acquire().ok_or_else(KubeletReply::too_many)?;
        let reply = self.handlers.pages.reply(&self.api, method, path, query);
        Ok(page(reply).with_permit(permit))
    }
}

fn page(reply: KubeletReply) -> HandlerResponse {
    HandlerResponse::new(reply.into_response()).within(PAGE_TIME)
}

#[cfg(test)]
mod tests;
