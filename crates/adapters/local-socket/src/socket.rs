//! The socket itself: who may connect, how many, for how long.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ports::local_api::{LocalApi, LocalEndpoint};
use ports::{LocalRuntime, PortFuture};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::listener::listen;
use crate::reply::{Desk, JSON, Reply};

/// More than people and their scripts need; the next one waits in the kernel's queue.
const MOST_CONNECTIONS: usize = 16;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// A manifest of the largest kind, as a JSON text.
const LARGEST_BODY: usize = 16 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves the agent at a path of the file system.
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

    /// People may also ask this runtime: for streams, usage and images.
    #[must_use]
    pub fn with_runtime(self, runtime: Arc<dyn LocalRuntime>) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Calls `tell` each time it begins to listen.
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
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let allowed = may_ask(&stream, own);
                    connections.spawn(serve(stream, allowed, desk.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

fn may_ask(stream: &UnixStream, own: u32) -> Result<(), String> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own => Ok(()),
        Ok(peer) => Err(format!("user {} may not ask this agent; root may", peer.uid())),
        Err(error) => Err(format!("the kernel does not tell who asks: {error}")),
    }
}

async fn serve(stream: UnixStream, allowed: Result<(), String>, desk: Desk) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (desk, allowed) = (desk.clone(), allowed.clone());
        async move { Ok::<_, Infallible>(reply(request, &allowed, &desk).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    // A peer's broken request or its going away is its own business.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

async fn reply(
    request: Request<Incoming>,
    allowed: &Result<(), String>,
    desk: &Desk,
) -> Response<String> {
    let Reply { status, content_type, body } = match allowed {
        Ok(()) => {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            // Only what is written has a body; of readers nothing is taken.
            let body = if method == Method::POST { whole(request).await } else { Ok(Vec::new()) };
            match body {
                Ok(body) => desk.answer(&method, &path, &body).await,
                Err(why) => refused(StatusCode::PAYLOAD_TOO_LARGE, &why),
            }
        }
        Err(why) => refused(StatusCode::FORBIDDEN, why),
    };
    let mut response = Response::new(String::from_utf8(body).unwrap_or_default());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
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
