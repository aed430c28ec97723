//! A TLS port that serves pages to authorized callers.
//!
//! Rule: open paths are served to every caller; for all others the caller must be authenticated (a
//! client certificate of the configured authorities, or a bearer token that the API server knows;
//! otherwise it is anonymous) and the API server must authorize it for the path. Connections are
//! bounded, handshakes and heads have timeouts, and a slow one delays only itself. Certificates and
//! authorities are read again every half minute. upstream: apiserver server/options, filters

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use ports::ClusterApi;
use ports::cluster_api::{ObjectPath, Resource};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::caller::{Caller, NotValid, VerifiedCertificate};
use crate::page::{Page, PageRequest, Pages};
use crate::review::Reviews;
use crate::serving_certificate::{CertificatePair, TlsSettings, read, server_config};

const MAX_CONNECTIONS: usize = 64;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection is ended after this time whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How often certificates and authorities are read again.
const REFRESH_PERIOD: Duration = Duration::from_secs(30);

const CONFIG_MAPS: Resource = Resource { group: "", version: "v1", plural: "configmaps" };

/// What the port serves and to which callers.
pub struct SecurePort {
    pub address: SocketAddr,
    pub tls: TlsSettings,
    /// Paths that need no authorization, exact or as prefixes that end in `*`.
    pub open_paths: Vec<String>,
    pub reviews: Reviews,
    /// Where the cluster's own client certificate authority is looked up, if at all.
    pub authority_lookup: Option<Arc<dyn ClusterApi>>,
    pub pages: Arc<dyn Pages>,
}

/// Why the port does not listen.
#[derive(Debug, thiserror::Error)]
pub enum SecurePortError {
    /// Names the file.
    #[error("{0}")]
    Certificate(String),
    #[error("{address}: {cause}")]
    Bind { address: SocketAddr, cause: std::io::Error },
}

/// A listening port.
pub struct ListeningPort {
    listener: TcpListener,
    state: Arc<SecurePortState>,
}

struct SecurePortState {
    port: SecurePort,
    pair: CertificatePair,
    config: Mutex<Arc<ServerConfig>>,
}

impl SecurePort {
    /// Binds the port and loads the certificate.
    ///
    /// # Errors
    /// If the certificate cannot be loaded or the port cannot be bound: file or address, and the
    /// cause.
    pub async fn listen(self) -> Result<ListeningPort, SecurePortError> {
        let pair = CertificatePair::load(&self.tls.source).map_err(SecurePortError::Certificate)?;
        let authorities = self.authorities().await;
        let config =
            server_config(&pair, &self.tls, &authorities).map_err(SecurePortError::Certificate)?;
        let listener = TcpListener::bind(self.address)
            .await
            .map_err(|cause| SecurePortError::Bind { address: self.address, cause })?;
        let state = SecurePortState { port: self, pair, config: Mutex::new(Arc::new(config)) };
        Ok(ListeningPort { listener, state: Arc::new(state) })
    }

    /// The authorities of the file and of the cluster that could be read.
    async fn authorities(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        if let Some(file) = &self.tls.client_authorities {
            match read(file) {
                Ok(pem) => found.push(pem),
                Err(error) => {
                    warn!(err = error, "No client certificates by the file of authorities");
                }
            }
        }
        if let Some(api) = &self.authority_lookup {
            match cluster_authority(api.as_ref()).await {
                Ok(pem) => found.push(pem),
                Err(error) => {
                    warn!(err = error, "No client certificates by the cluster's authority");
                }
            }
        }
        found
    }
}

/// The client CA that the API server publishes for extension servers.
async fn cluster_authority(api: &dyn ClusterApi) -> Result<Vec<u8>, String> {
    let path =
        ObjectPath::namespaced(CONFIG_MAPS, "kube-system", "extension-apiserver-authentication");
    let map = api.read(&path).await.map_err(|error| error.to_string())?;
    let map: serde_json::Value =
        serde_json::from_slice(&map.json).map_err(|error| error.to_string())?;
    let pem = map.pointer("/data/client-ca-file").and_then(serde_json::Value::as_str);
    pem.map(|pem| pem.as_bytes().to_vec())
        .ok_or_else(|| "extension-apiserver-authentication has no client-ca-file".to_owned())
}

impl ListeningPort {
    /// The address, with the port that the kernel chose if it was 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves for ever.
    pub async fn serve(self) {
        let Self { listener, state } = self;
        let mut connections = JoinSet::new();
        let mut refresh_tick = tokio::time::interval(REFRESH_PERIOD);
        refresh_tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        refresh_tick.tick().await;
        let refresher = state.clone();
        let refresh = async move {
            loop {
                refresh_tick.tick().await;
                refresher.refresh().await;
            }
        };
        tokio::pin!(refresh);
        loop {
            let full = connections.len() >= MAX_CONNECTIONS;
            tokio::select! {
                accepted = listener.accept(), if !full => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve_connection(stream, state.clone()));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
                () = &mut refresh => {}
            }
        }
    }
}

impl SecurePortState {
    /// Reads files and the cluster's authority again; if that fails, the old ones stay in use.
    async fn refresh(&self) {
        let pair = match &self.port.tls.source {
            crate::serving_certificate::CertificateSource::SelfSigned { .. } => {
                Ok(self.pair.clone())
            }
            files => CertificatePair::load(files),
        };
        let authorities = self.port.authorities().await;
        let config = pair.and_then(|pair| server_config(&pair, &self.port.tls, &authorities));
        match config {
            Ok(config) => {
                *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            }
            Err(error) => warn!(err = error, "The certificate cannot be used; the old one stays"),
        }
    }

    async fn answer(&self, request: &Request<Incoming>, presented: &PresentedCertificate) -> Page {
        let uri = request.uri();
        let (path, verb) = (uri.path(), request.method().as_str().to_ascii_lowercase());
        if !is_open(&self.port.open_paths, path) {
            let caller = match self.caller(request.headers(), presented).await {
                Ok(caller) => caller,
                Err(page) => return page,
            };
            if !self.port.reviews.is_allowed(&caller, &verb, path).await {
                info!(v = 4, user = caller.name, verb, path, "Forbidden");
                return forbidden(&caller, &verb, path);
            }
        }
        let wanted = PageRequest {
            path: path.to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        };
        self.port.pages.answer(&wanted).await
    }

    /// The caller: a certificate takes precedence over a token, and invalid credentials never make
    /// the anonymous caller.
    async fn caller(
        &self,
        headers: &HeaderMap,
        presented: &PresentedCertificate,
    ) -> Result<Caller, Page> {
        let is_good = match presented {
            PresentedCertificate::Nothing => true,
            PresentedCertificate::Unreadable => false,
            PresentedCertificate::Certificate(certificate) => {
                match certificate.caller_at(SystemTime::now()) {
                    Ok(Some(caller)) => return Ok(caller.clone()),
                    Ok(None) => true,
                    Err(NotValid) => false,
                }
            }
        };
        match bearer(headers) {
            Some(token) => self.port.reviews.token(&token).await.ok_or_else(unauthorized),
            None if is_good => Ok(Caller::anonymous()),
            None => Err(unauthorized()),
        }
    }
}

/// The client's certificate in the handshake.
enum PresentedCertificate {
    Nothing,
    /// TLS accepted it, but its subject is rejected.
    Unreadable,
    Certificate(VerifiedCertificate),
}

async fn serve_connection(stream: TcpStream, state: Arc<SecurePortState>) {
    let config = state.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let acceptor = TlsAcceptor::from(config);
    // A peer's errors need no report.
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let presented = Arc::new(match certificate.map(|der| VerifiedCertificate::read(der)) {
        None => PresentedCertificate::Nothing,
        Some(None) => PresentedCertificate::Unreadable,
        Some(Some(certificate)) => PresentedCertificate::Certificate(certificate),
    });
    let service = service_fn(move |request: Request<Incoming>| {
        let (state, presented) = (state.clone(), presented.clone());
        async move {
            let page = state.answer(&request, &presented).await;
            Ok::<Response<String>, Infallible>(page.into_response())
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}

fn is_open(open: &[String], path: &str) -> bool {
    open.iter().any(|rule| match rule.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        // With or without a slash in front, as upstream.
        None => {
            let rule = rule.trim_start_matches('/');
            path.trim_start_matches('/') == rule
        }
    })
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn unauthorized() -> Page {
    status_page(401, "Unauthorized", "Unauthorized")
}

fn forbidden(caller: &Caller, verb: &str, path: &str) -> Page {
    let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", caller.name);
    status_page(403, "Forbidden", &message)
}

/// An error as the API server formats it.
fn status_page(code: u16, reason: &str, message: &str) -> Page {
    let body = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    });
    Page { status: code, content_type: "application/json", body: format!("{body}\n") }
}

#[cfg(test)]
mod tests;
