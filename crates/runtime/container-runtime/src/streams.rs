//! The streaming server: exec, attach and port-forward by one-time addresses on loopback.
//!
//! Rule: an address works once and for a minute; whoever has it may use it, so it is not guessable
//! and goes only to who asked over CRI. A connection becomes SPDY/3.1 or WebSocket; what happens on
//! it is the same for both. One slow or broken client hurts only itself.
//!
//! upstream: k8s.io/streaming, kubelet's pkg/cri/streaming

mod commands;
mod forward;
mod session;
mod spdy_transport;
#[cfg(test)]
mod tests;
mod tokens;
mod upgrade;
mod websocket_transport;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cri_wire::v1;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::{Doing as _, Failure, Result};
use crate::runtime::Runtime;

use tokens::Tokens;

/// Connections at once, those with a running stream included; more wait in the kernel.
const CONNECTIONS: usize = 512;
/// How long a client may take to send its request.
const REQUEST: Duration = Duration::from_secs(30);

/// What an address stands for.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Exec(v1::ExecRequest),
    Attach(v1::AttachRequest),
    PortForward(v1::PortForwardRequest),
}

impl Wanted {
    fn kind(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Attach(_) => "attach",
            Self::PortForward(_) => "portforward",
        }
    }
}

/// Where the server listens, and what its addresses stand for.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    address: SocketAddr,
    tokens: Arc<Tokens>,
}

impl Streams {
    /// Listens; [`Streams::serve`] answers.
    pub(crate) async fn bind(address: SocketAddr) -> Result<(Self, TcpListener)> {
        let listener = TcpListener::bind(address)
            .await
            .doing(format!("listening for streams on {address}"))?;
        let address = listener.local_addr().doing("asking for the streams' address")?;
        Ok((Self { address, tokens: Arc::default() }, listener))
    }

    /// A one-time address.
    fn url(&self, wanted: Wanted) -> Result<String> {
        let kind = wanted.kind();
        let token = self.tokens.issue(wanted)?;
        Ok(format!("http://{}/{kind}/{token}", self.address))
    }

    pub(crate) async fn serve(self, runtime: Runtime, listener: TcpListener) {
        let answer = move |request, place| self.answer(runtime.clone(), request, place);
        accept(listener, CONNECTIONS, answer).await;
    }

    fn answer(
        &self,
        runtime: Runtime,
        request: Request<Incoming>,
        place: Place,
    ) -> Response<upgrade::Body> {
        let path = request.uri().path().to_owned();
        let mut parts = path.trim_start_matches('/').split('/');
        let (kind, token, rest) = (parts.next(), parts.next(), parts.next());
        let found = match (kind, token, rest) {
            (Some(kind), Some(token), None) => {
                self.tokens.redeem(token).filter(|wanted| wanted.kind() == kind)
            }
            _ => None,
        };
        match found {
            Some(wanted) => {
                let forwarding = matches!(wanted, Wanted::PortForward(_));
                upgrade::begin(forwarding, request, place, move |carrier, socket| {
                    upgrade::go_on(runtime, wanted, carrier, socket)
                })
            }
            None => upgrade::refusal(404, "404 page not found"),
        }
    }
}

/// A place among the connections; taken until the last of its owners is gone.
type Place = Arc<OwnedSemaphorePermit>;

/// Answers each connection, so many at once.
async fn accept<A>(listener: TcpListener, most: usize, answer: A)
where
    A: Fn(Request<Incoming>, Place) -> Response<upgrade::Body> + Clone + Send + 'static,
{
    let places = Arc::new(Semaphore::new(most));
    loop {
        if places.available_permits() == 0 {
            tracing::warn!(most, "as many streams as allowed are open; others wait");
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let place = Arc::new(place);
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // No descriptors left, most likely: others will be freed.
                tracing::warn!(%error, "a stream was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answered = answer(request, Arc::clone(&place));
                async move { Ok::<_, std::convert::Infallible>(answered) }
            });
            let _ = stream.set_nodelay(true);
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a stream's connection");
            }
        });
    }
}

impl Runtime {
    /// An address to run a command at.
    pub fn exec(&self, request: v1::ExecRequest) -> Result<String> {
        check_streams(request.tty, request.stdin, request.stdout, request.stderr)?;
        self.running(&request.container_id)?;
        self.streams.url(Wanted::Exec(request))
    }

    /// An address to join a container at.
    pub fn attach(&self, request: v1::AttachRequest) -> Result<String> {
        check_streams(request.tty, request.stdin, request.stdout, request.stderr)?;
        self.running(&request.container_id)?;
        self.streams.url(Wanted::Attach(request))
    }

    /// An address to reach a pod's ports at.
    pub fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String> {
        let sandbox = self
            .book
            .sandbox(&request.pod_sandbox_id)
            .doing(format!("failed to find sandbox {:?}", request.pod_sandbox_id))?;
        if sandbox.record().stage() != crate::records::SandboxStage::Ready {
            return Err(Failure::plain("sandbox container is not running"));
        }
        self.streams.url(Wanted::PortForward(request))
    }
}

/// upstream: k8s.io/streaming validateExecRequest
fn check_streams(tty: bool, stdin: bool, stdout: bool, stderr: bool) -> Result<()> {
    if tty && stderr {
        return Err(Failure::invalid("tty and stderr cannot both be true"));
    }
    if !(stdin || stdout || stderr) {
        return Err(Failure::invalid("one of stdin, stdout, or stderr must be set"));
    }
    Ok(())
}
