//! The socket itself: which clients may connect, how many, for how long.
//!
//! Rule: a connection is for requests, few at once and each for a short time, until it waits for a
//! change or is handed to the runtime for a stream. Waiting connections (`logs -f`, `stop`) take no
//! request slot; their number is limited, and one more is refused with the reason. A stream has no
//! time limit here; the number of streams is the runtime's to limit.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ports::local_api::{LocalApi, LocalEndpoint};
use ports::local_runtime::{CarryStream, STREAM_UPGRADE};
use ports::{LocalRuntime, PortFuture};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::listener::listen;
use crate::reply::{JSON, RequestRouter, SocketReply};

/// More than people and their scripts open at once; the next one waits in the kernel's queue.
const MAX_CONNECTIONS: usize = 16;
/// Connections that wait for a change. They cost a task and a descriptor each.
const MAX_LONG_POLLS: usize = 128;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// A manifest of the largest size, as a JSON string.
const MAX_BODY_BYTES: usize = 16 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves the agent's API at a path of the file system.
#[derive(Clone)]
pub struct AgentSocket {
    path: PathBuf,
    runtime: Option<Arc<dyn LocalRuntime>>,
    /// Called each time it begins to listen.
    listening: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl AgentSocket {
    pub fn new(path: PathBuf) -> Self {
        Self { path, runtime: None, listening: None }
    }

    /// Adds this runtime: for streams, usage and images.
    #[must_use]
    pub fn with_runtime(self, runtime: Arc<dyn LocalRuntime>) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Sets the callback for each time it begins to listen.
    #[must_use]
    pub fn on_listening(self, callback: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { listening: Some(callback), ..self }
    }
}

impl LocalEndpoint for AgentSocket {
    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            match listen(&self.path).await {
                Ok(listener) => {
                    if let Some(callback) = &self.listening {
                        callback();
                    }
                    accept(&listener, &RequestRouter { api, runtime: self.runtime.clone() }).await
                }
                Err(reason) => reason,
            }
        })
    }
}

/// Accepts for ever.
async fn accept(listener: &UnixListener, router: &RequestRouter) -> String {
    let own_uid = rustix::process::geteuid().as_raw();
    let permits = ConnectionPermits::default();
    // Dropping them aborts their tasks.
    let (mut connections, mut streams) = (JoinSet::new(), JoinSet::new());
    loop {
        tokio::select! {
            accepted = next(listener, &permits) => match accepted {
                Ok((stream, permit)) => {
                    let allowed = check_peer(&stream, own_uid);
                    connections.spawn(serve(stream, allowed, router.clone(), permit));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(answered) = connections.join_next() => {
                if let Ok(Some(upgraded_stream)) = answered {
                    streams.spawn(upgraded_stream.serve_stream());
                }
            }
            Some(_) = streams.join_next() => {}
        }
    }
}

/// The next connection, once there is a slot for a request.
async fn next(
    listener: &UnixListener,
    permits: &ConnectionPermits,
) -> std::io::Result<(UnixStream, ConnectionPermit)> {
    let taken = permits.requests.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    let held_permit = Mutex::new(HeldPermit::Request { _permit: taken });
    Ok((
        stream,
        ConnectionPermit { held_permit: Arc::new(held_permit), waiting: permits.waiting.clone() },
    ))
}

struct ConnectionPermits {
    requests: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for ConnectionPermits {
    fn default() -> Self {
        let permits = |max| Arc::new(Semaphore::new(max));
        Self { requests: permits(MAX_CONNECTIONS), waiting: permits(MAX_LONG_POLLS) }
    }
}

/// The slot that one connection holds; one at a time, released with the connection.
#[derive(Clone)]
struct ConnectionPermit {
    held_permit: Arc<Mutex<HeldPermit>>,
    waiting: Arc<Semaphore>,
}

enum HeldPermit {
    Request { _permit: OwnedSemaphorePermit },
    LongPoll { _permit: OwnedSemaphorePermit },
}

impl ConnectionPermit {
    /// Turns the connection into one that waits. `false` if too many do.
    fn start_long_poll(&self) -> bool {
        let mut held_permit = self.held_permit.lock().unwrap_or_else(PoisonError::into_inner);
        if let HeldPermit::Request { .. } = *held_permit {
            let Ok(permit) = self.waiting.clone().try_acquire_owned() else { return false };
            *held_permit = HeldPermit::LongPoll { _permit: permit };
        }
        true
    }
}

fn check_peer(stream: &UnixStream, own_uid: u32) -> Result<(), String> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own_uid => Ok(()),
        Ok(peer) => Err(format!("user {} may not ask this agent; root may", peer.uid())),
        Err(error) => Err(format!("cannot read the peer's credentials: {error}")),
    }
}

/// A connection that becomes a stream.
struct UpgradedStream {
    upgrade: OnUpgrade,
    stream_handler: CarryStream,
}

impl UpgradedStream {
    async fn serve_stream(self) {
        // If it is gone, the client has disconnected, and so ends the stream.
        let Ok(upgraded) = self.upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<UnixStream>>() else { return };
        let Ok(connection) = parts.io.into_inner().into_std() else { return };
        (self.stream_handler)(connection.into(), parts.read_buf.to_vec()).await;
    }
}

/// Serves one connection. `Some`: it is a stream from now on.
async fn serve(
    stream: UnixStream,
    allowed: Result<(), String>,
    router: RequestRouter,
    permit: ConnectionPermit,
) -> Option<UpgradedStream> {
    let (upgrade_sender, mut upgraded_stream) = mpsc::channel(1);
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, allowed, upgrade_sender) =
            (router.clone(), allowed.clone(), upgrade_sender.clone());
        let permit = permit.clone();
        async move {
            let permission = match &allowed {
                Ok(()) if is_long_poll(&request) && !permit.start_long_poll() => Err((
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("{MAX_LONG_POLLS} others wait for changes already"),
                )),
                Ok(()) => Ok(()),
                Err(reason) => Err((StatusCode::FORBIDDEN, reason.clone())),
            };
            Ok::<_, Infallible>(reply(request, permission, &router, &upgrade_sender).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // A peer's broken request or disconnect needs no report.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
    upgraded_stream.try_recv().ok()
}

/// The answer comes when something changes, which may be never.
fn is_long_poll(request: &Request<Incoming>) -> bool {
    request.uri().path().starts_with("/v1/changes/")
}

async fn reply(
    request: Request<Incoming>,
    permission: Result<(), (StatusCode, String)>,
    router: &RequestRouter,
    upgrade_sender: &mpsc::Sender<UpgradedStream>,
) -> Response<String> {
    let answered = match permission {
        Ok(()) => answer(request, router, upgrade_sender).await,
        Err((status, reason)) => Some(rejection(status, &reason)),
    };
    let Some(SocketReply { status, content_type, body }) = answered else {
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(STREAM_UPGRADE));
        return response;
    };
    let mut response = Response::new(String::from_utf8(body).unwrap_or_default());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `None`: the connection becomes a stream and is handed over.
async fn answer(
    mut request: Request<Incoming>,
    router: &RequestRouter,
    upgrade_sender: &mpsc::Sender<UpgradedStream>,
) -> Option<SocketReply> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // Only a POST has a body; others' is not read.
    if method != Method::POST {
        return Some(router.answer(&method, &path, &[]).await);
    }
    let upgrade = offers_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
    let body = match read_body(request).await {
        Ok(body) => body,
        Err(reason) => return Some(rejection(StatusCode::PAYLOAD_TOO_LARGE, &reason)),
    };
    if let Some(upgrade) = upgrade
        && let Some(streamed) = router.stream(&path, &body).await
    {
        return match streamed {
            Ok(stream_handler) => {
                // There is room: a connection is handed over once.
                let _ = upgrade_sender.try_send(UpgradedStream { upgrade, stream_handler });
                None
            }
            Err(reply) => Some(reply),
        };
    }
    Some(router.answer(&method, &path, &body).await)
}

/// Whether the client can continue with a stream on the same connection.
fn offers_upgrade(request: &Request<Incoming>) -> bool {
    let named = |name: HeaderName, word: &str| {
        let values = request.headers().get_all(name).into_iter();
        let values = values.filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    named(CONNECTION, "upgrade") && named(UPGRADE, STREAM_UPGRADE)
}

fn rejection(status: StatusCode, reason: &str) -> SocketReply {
    let body = format!("{{\"refusal\":\"notNow\",\"message\":{reason:?}}}").into_bytes();
    SocketReply { status, content_type: JSON, body }
}

/// The request's body, within its limits of size and time.
async fn read_body(request: Request<Incoming>) -> Result<Vec<u8>, String> {
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) => Err(format!("the request's body: {error}")),
        Err(_) => Err("the request's body did not come within 10 s".to_owned()),
    }
}

#[cfg(test)]
mod tests;
