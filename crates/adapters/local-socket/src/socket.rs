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
use crate::reply::{Desk, JSON, Reply};

/// More than people and their scripts open at once; the next one waits in the kernel's queue.
const MOST_CONNECTIONS: usize = 16;
/// Connections that wait for a change. They cost a task and a descriptor each.
const MOST_WAITING: usize = 128;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// A manifest of the largest size, as a JSON string.
const LARGEST_BODY: usize = 16 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves the agent's API at a path of the file system.
#[derive(Clone)]
pub struct LocalSocket {
    path: PathBuf,
    runtime: Option<Arc<dyn LocalRuntime>>,
    /// Called each time it begins to listen.
    listening: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl LocalSocket {
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
    pub fn when_listening(self, tell: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { listening: Some(tell), ..self }
    }
}

impl LocalEndpoint for LocalSocket {
    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            match listen(&self.path).await {
                Ok(listener) => {
                    if let Some(tell) = &self.listening {
                        tell();
                    }
                    accept(&listener, &Desk { api, runtime: self.runtime.clone() }).await
                }
                Err(why) => why,
            }
        })
    }
}

/// Accepts for ever.
async fn accept(listener: &UnixListener, desk: &Desk) -> String {
    let own = rustix::process::geteuid().as_raw();
    let places = Places::default();
    // Dropping them aborts their tasks.
    let (mut connections, mut streams) = (JoinSet::new(), JoinSet::new());
    loop {
        tokio::select! {
            accepted = next(listener, &places) => match accepted {
                Ok((stream, place)) => {
                    let allowed = may_ask(&stream, own);
                    connections.spawn(serve(stream, allowed, desk.clone(), place));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(answered) = connections.join_next() => {
                if let Ok(Some(handed_over)) = answered {
                    streams.spawn(handed_over.carried());
                }
            }
            Some(_) = streams.join_next() => {}
        }
    }
}

/// The next connection, once there is a slot for a request.
async fn next(listener: &UnixListener, places: &Places) -> std::io::Result<(UnixStream, Place)> {
    let taken = places.questions.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    let held = Mutex::new(Held::Question { _place: taken });
    Ok((stream, Place { held: Arc::new(held), waiting: places.waiting.clone() }))
}

struct Places {
    questions: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { questions: places(MOST_CONNECTIONS), waiting: places(MOST_WAITING) }
    }
}

/// The slot that one connection holds; one at a time, released with the connection.
#[derive(Clone)]
struct Place {
    held: Arc<Mutex<Held>>,
    waiting: Arc<Semaphore>,
}

enum Held {
    Question { _place: OwnedSemaphorePermit },
    Wait { _place: OwnedSemaphorePermit },
}

impl Place {
    /// Turns the connection into one that waits. `false` if too many do.
    fn wait(&self) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Held::Question { .. } = *held {
            let Ok(place) = self.waiting.clone().try_acquire_owned() else { return false };
            *held = Held::Wait { _place: place };
        }
        true
    }
}

fn may_ask(stream: &UnixStream, own: u32) -> Result<(), String> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own => Ok(()),
        Ok(peer) => Err(format!("user {} may not ask this agent; root may", peer.uid())),
        Err(error) => Err(format!("cannot read the peer's credentials: {error}")),
    }
}

/// A connection that becomes a stream.
struct HandedOver {
    upgrade: OnUpgrade,
    carry: CarryStream,
}

impl HandedOver {
    async fn carried(self) {
        // If it is gone, the client has disconnected, and so ends the stream.
        let Ok(upgraded) = self.upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<UnixStream>>() else { return };
        let Ok(connection) = parts.io.into_inner().into_std() else { return };
        (self.carry)(connection.into(), parts.read_buf.to_vec()).await;
    }
}

/// Serves one connection. `Some`: it is a stream from now on.
async fn serve(
    stream: UnixStream,
    allowed: Result<(), String>,
    desk: Desk,
    place: Place,
) -> Option<HandedOver> {
    let (hand_over, mut handed_over) = mpsc::channel(1);
    let service = service_fn(move |request: Request<Incoming>| {
        let (desk, allowed, hand_over) = (desk.clone(), allowed.clone(), hand_over.clone());
        let place = place.clone();
        async move {
            let may = match &allowed {
                Ok(()) if waits(&request) && !place.wait() => Err((
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("{MOST_WAITING} others wait for changes already"),
                )),
                Ok(()) => Ok(()),
                Err(why) => Err((StatusCode::FORBIDDEN, why.clone())),
            };
            Ok::<_, Infallible>(reply(request, may, &desk, &hand_over).await)
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
    handed_over.try_recv().ok()
}

/// The answer comes when something changes, which may be never.
fn waits(request: &Request<Incoming>) -> bool {
    request.uri().path().starts_with("/v1/changes/")
}

async fn reply(
    request: Request<Incoming>,
    may: Result<(), (StatusCode, String)>,
    desk: &Desk,
    hand_over: &mpsc::Sender<HandedOver>,
) -> Response<String> {
    let answered = match may {
        Ok(()) => answer(request, desk, hand_over).await,
        Err((status, why)) => Some(refused(status, &why)),
    };
    let Some(Reply { status, content_type, body }) = answered else {
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
    desk: &Desk,
    hand_over: &mpsc::Sender<HandedOver>,
) -> Option<Reply> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // Only a POST has a body; others' is not read.
    if method != Method::POST {
        return Some(desk.answer(&method, &path, &[]).await);
    }
    let upgrade = offers_connection(&request).then(|| hyper::upgrade::on(&mut request));
    let body = match whole(request).await {
        Ok(body) => body,
        Err(why) => return Some(refused(StatusCode::PAYLOAD_TOO_LARGE, &why)),
    };
    if let Some(upgrade) = upgrade
        && let Some(streamed) = desk.stream(&path, &body).await
    {
        return match streamed {
            Ok(carry) => {
                // There is room: a connection is handed over once.
                let _ = hand_over.try_send(HandedOver { upgrade, carry });
                None
            }
            Err(reply) => Some(reply),
        };
    }
    Some(desk.answer(&method, &path, &body).await)
}

/// Whether the client can continue with a stream on the same connection.
fn offers_connection(request: &Request<Incoming>) -> bool {
    let named = |name: HeaderName, word: &str| {
        let values = request.headers().get_all(name).into_iter();
        let values = values.filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    named(CONNECTION, "upgrade") && named(UPGRADE, STREAM_UPGRADE)
}

fn refused(status: StatusCode, why: &str) -> Reply {
    let body = format!("{{\"refusal\":\"notNow\",\"message\":{why:?}}}").into_bytes();
    Reply { status, content_type: JSON, body }
}

/// The request's body, within its limits of size and time.
async fn whole(request: Request<Incoming>) -> Result<Vec<u8>, String> {
    let body = Limited::new(request.into_body(), LARGEST_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) => Err(format!("the request's body: {error}")),
        Err(_) => Err("the request's body did not come within 10 s".to_owned()),
    }
}

#[cfg(test)]
mod tests;
