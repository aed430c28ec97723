//! Exec, attach and port-forward: by one-time URLs on loopback, and on a connection that a client
//! in this process passes.
//!
//! Rule: a URL works once and for a minute; it is the only authorization, so it is not guessable
//! and returned only to the CRI client. A connection is upgraded to SPDY/3.1 or WebSocket, and
//! handled the same way afterwards; a passed connection is SPDY from its first byte. All streams
//! together have a limit. A connection counts as a stream once it has redeemed a token; before that
//! any local process can open it, so it has a short timeout and a pool of its own. A slow or broken
//! client affects only itself. Nothing listens before a URL was requested: a runtime that serves no
//! socket has no port.
//!
//! upstream: k8s.io/streaming, kubelet's pkg/cri/streaming

mod commands;
mod connection;
mod forward;
mod pending;
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

use cri_wire::{OpenStream, v1};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use crate::failure::{Doing as _, Failure, Result};
use crate::runtime::Runtime;

use pending::{Evicted, Pending, PendingConnections};
use tokens::Tokens;

/// The limit of concurrent streams.
const STREAMS: usize = 512;
/// The limit of concurrent connections that have not redeemed a token.
const PENDING: usize = 128;
/// How long a client may take to send its request and to receive the answer.
const REQUEST: Duration = Duration::from_secs(5);

/// The request that a URL stands for.
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

/// The server's address, its tokens, and the limits of streams.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    /// As configured; port 0 lets the kernel choose.
    wanted: SocketAddr,
    /// Set once a URL was requested.
    listens: Arc<OnceCell<SocketAddr>>,
    tokens: Arc<Tokens>,
    places: Arc<Semaphore>,
    pending: Arc<PendingConnections>,
}

impl Streams {
    pub(crate) fn new(wanted: SocketAddr) -> Self {
        Self {
            wanted,
            listens: Arc::default(),
            tokens: Arc::default(),
            places: Arc::new(Semaphore::new(STREAMS)),
            pending: PendingConnections::new(PENDING),
        }
    }

    /// The listener's address. Starts to listen if it did not yet; then `serve` answers.
    async fn address(&self, serve: impl FnOnce(TcpListener)) -> Result<SocketAddr> {
        let listening = self.listens.get_or_try_init(async || {
            let wanted = self.wanted;
            let listener = TcpListener::bind(wanted)
                .await
                .doing(format!("listening for streams on {wanted}"))?;
            let address = listener.local_addr().doing("asking for the streams' address")?;
            serve(listener);
            Ok(address)
        });
        listening.await.copied()
    }

    /// A permit for a stream, held until the stream has ended.
    fn place(&self) -> Result<Place> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let most = format!("as many streams as allowed are open ({STREAMS})");
            Failure::new(Code::ResourceExhausted, most)
        })
    }

    fn answer(
        &self,
        runtime: Runtime,
        request: Request<Incoming>,
        pending: &Pending,
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
        let Some(wanted) = found else { return upgrade::refusal(404, "404 page not found") };
        let place = match self.place() {
            Ok(place) => place,
            Err(failure) => return upgrade::refusal(503, &failure.text),
        };
        if !pending.leave() {
            return upgrade::refusal(503, "too many connections");
        }
        let forwarding = matches!(wanted, Wanted::PortForward(_));
        upgrade::begin(forwarding, request, place, move |carrier, socket| {
            upgrade::go_on(runtime, wanted, carrier, socket)
        })
    }
}

/// A permit for a stream.
type Place = OwnedSemaphorePermit;

/// Accepts every connection; beyond the limit without a token, the oldest are closed.
async fn accept<A>(listener: TcpListener, connections: Arc<PendingConnections>, answer: A)
where
    A: Fn(Request<Incoming>, &Pending) -> Response<upgrade::Body> + Clone + Send + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely no descriptors left: others will be freed.
                tracing::warn!(%error, "a stream was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (pending, evicted) = connections.add();
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answered = answer(request, &pending);
            async move { Ok::<_, std::convert::Infallible>(answered) }
        });
        tokio::spawn(async move {
            tokio::select! {
                () = answer_one(stream, service) => {}
                // An error only means that it is no longer pending and must not be closed.
                Ok(Evicted) = evicted => tracing::debug!("a connection without a token was closed"),
            }
        });
        // In a flood, too, a request that has arrived is read before the next connection is
        // accepted.
        tokio::task::yield_now().await;
    }
}

/// One request and its answer. An upgraded connection is handled elsewhere.
async fn answer_one<S>(stream: TcpStream, service: S)
where
    S: hyper::service::HttpService<
            Incoming,
            ResBody = upgrade::Body,
            Error = std::convert::Infallible,
        >,
{
    let _ = stream.set_nodelay(true);
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    match tokio::time::timeout(REQUEST, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a stream's connection"),
        Err(_) => tracing::debug!("a stream's connection sent no request in time"),
    }
}

impl Runtime {
    /// Starts the streaming server, if it does not listen yet.
    pub(crate) async fn listen_for_streams(&self) -> Result<SocketAddr> {
        let serve = |listener| {
            let (streams, runtime) = (self.streams.clone(), self.clone());
            let connections = Arc::clone(&streams.pending);
            let answer = move |request: Request<Incoming>, pending: &Pending| {
                streams.answer(runtime.clone(), request, pending)
            };
            tokio::spawn(accept(listener, connections, answer));
        };
        self.streams.address(serve).await
    }

    /// A one-time URL for a request.
    pub(crate) async fn stream_address(&self, wanted: Wanted) -> Result<String> {
        self.check_wanted(&wanted)?;
        let address = self.listen_for_streams().await?;
        let kind = wanted.kind();
        let token = self.streams.tokens.issue(wanted)?;
        Ok(format!("http://{address}/{kind}/{token}"))
    }

    /// A handle by which a client in this process passes a connection for a request.
    pub(crate) fn open_stream(&self, wanted: Wanted) -> Result<OpenStream> {
        self.check_wanted(&wanted)?;
        let (place, runtime) = (self.streams.place()?, self.clone());
        Ok(OpenStream::new(Box::new(move |connection, early| {
            Box::pin(async move {
                match upgrade::Socket::given(connection, early) {
                    Ok(socket) => {
                        upgrade::go_on(runtime, wanted, upgrade::Carrier::of_given(), socket).await;
                    }
                    Err(error) => tracing::error!(%error, "a connection that was given"),
                }
                drop(place);
            })
        })))
    }

    fn check_wanted(&self, wanted: &Wanted) -> Result<()> {
        match wanted {
            Wanted::Exec(v1::ExecRequest { container_id, .. })
            | Wanted::Attach(v1::AttachRequest { container_id, .. }) => {
                check_streams(commands::streams_of(wanted))?;
                self.running_container(container_id).map(drop)
            }
            Wanted::PortForward(request) => {
                let sandbox = self
                    .book
                    .sandbox(&request.pod_sandbox_id)
                    .doing(format!("failed to find sandbox {:?}", request.pod_sandbox_id))?;
                if sandbox.record().stage() != crate::records::SandboxStage::Ready {
                    return Err(Failure::plain("sandbox container is not running"));
                }
                Ok(())
            }
        }
    }
}

/// upstream: k8s.io/streaming validateExecRequest
fn check_streams(has: session::Has) -> Result<()> {
    if has.tty && has.stderr {
        return Err(Failure::invalid("tty and stderr cannot both be true"));
    }
    if !(has.stdin || has.stdout || has.stderr) {
        return Err(Failure::invalid("one of stdin, stdout, or stderr must be set"));
    }
    Ok(())
}
