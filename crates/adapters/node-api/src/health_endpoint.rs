//! The plain-HTTP health endpoint (`healthzBindAddress:healthzPort`).
//!
//! Rule: any client may connect, so none may cost much: connections are bounded, a request's head
//! must arrive in time, replies are small. Connections live inside the `serve` future and end with
//! it; nothing is spawned separately.

use crate::health_counts::HealthCheckCounts;
use crate::health_reply;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ports::{HealthChecks, HealthEndpoint, HealthEndpointError, PortFuture};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// More than any set of probes needs; the next one waits in the kernel's queue.
const MAX_CONNECTIONS: usize = 32;
/// For the head of each request, which is also how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection is ended after this time whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// After a failed `accept` (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves health checks over HTTP/1 on one address.
#[derive(Debug, Clone)]
pub struct HttpHealthEndpoint {
    address: SocketAddr,
    counts: Arc<HealthCheckCounts>,
}

impl HttpHealthEndpoint {
    /// `counts` gets the results.
    pub fn new(address: SocketAddr, counts: Arc<HealthCheckCounts>) -> HttpHealthEndpoint {
        HttpHealthEndpoint { address, counts }
    }
}

impl HealthEndpoint for HttpHealthEndpoint {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn serve(&self, checks: HealthChecks) -> PortFuture<'_, HealthEndpointError> {
        Box::pin(async move {
            match TcpListener::bind(self.address).await {
                Ok(listener) => serve_connections(listener, checks, &self.counts).await,
                Err(error) => HealthEndpointError::Listen {
                    address: self.address.to_string(),
                    cause: error.to_string(),
                },
            }
        })
    }
}

/// Accepts for ever.
async fn serve_connections(
    listener: TcpListener,
    checks: HealthChecks,
    counts: &Arc<HealthCheckCounts>,
) -> HealthEndpointError {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        // `accept` is cancel-safe; finished connections are taken out as they end.
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, checks.clone(), counts.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, checks: HealthChecks, counts: Arc<HealthCheckCounts>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (checks, counts) = (checks.clone(), counts.clone());
        async move { Ok::<_, Infallible>(reply(&request, &checks, &counts)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    // A peer's broken request or disconnect needs no report.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

fn reply(
    request: &Request<Incoming>,
    checks: &HealthChecks,
    counts: &HealthCheckCounts,
) -> Response<String> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let answer = health_reply::answer(path, query, checks, counts);
    let mut response = Response::new(answer.body);
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
