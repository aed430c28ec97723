//! The socket itself: who may connect, how many, for how long.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::listener::listen;
use crate::reply::{Reply, answer};

/// More than people and their scripts need; the next one waits in the kernel's queue.
const MOST_CONNECTIONS: usize = 16;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves the agent at a path of the file system.
#[derive(Debug, Clone)]
pub struct LocalSocket {
    path: PathBuf,
}

impl LocalSocket {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl LocalEndpoint for LocalSocket {
    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            match listen(&self.path).await {
                Ok(listener) => accept(&listener, &api).await,
                Err(why) => why,
            }
        })
    }
}

/// Accepts for ever.
async fn accept(listener: &UnixListener, api: &Arc<dyn LocalApi>) -> String {
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
                    connections.spawn(serve(stream, allowed, api.clone()));
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

async fn serve(stream: UnixStream, allowed: Result<(), String>, api: Arc<dyn LocalApi>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (api, allowed) = (api.clone(), allowed.clone());
        async move { Ok::<_, Infallible>(reply(&request, &allowed, &*api).await) }
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
    request: &Request<Incoming>,
    allowed: &Result<(), String>,
    api: &dyn LocalApi,
) -> Response<String> {
    let Reply { status, body } = match allowed {
        Ok(()) => answer(api, request.method(), request.uri().path()).await,
        Err(why) => Reply {
            status: StatusCode::FORBIDDEN,
            body: format!("{{\"refusal\":\"notNow\",\"message\":{why:?}}}").into_bytes(),
        },
    };
    let mut response = Response::new(String::from_utf8(body).unwrap_or_default());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
