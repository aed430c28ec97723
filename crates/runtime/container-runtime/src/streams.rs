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

use cri_wire::{InProcessStream, v1};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use crate::failure::{CallContext as _, CriError, Result};
use crate::runtime::Runtime;

use pending::{Evicted, PendingConnection, PendingConnections};
use tokens::StreamTokens;

/// The limit of concurrent streams.
const MAX_STREAMS: usize = 512;
/// The limit of concurrent connections that have not redeemed a token.
const MAX_PENDING: usize = 128;
/// How long a client may take to send its request and to receive the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The request that a URL stands for.
#[derive(Debug, Clone)]
pub(crate) enum StreamRequest {
    Exec(v1::ExecRequest),
    Attach(v1::AttachRequest),
    PortForward(v1::PortForwardRequest),
}

impl StreamRequest {
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
pub(crate) struct StreamingServer {
    /// As configured; port 0 lets the kernel choose.
    wanted: SocketAddr,
    /// Set once a URL was requested.
    listens: Arc<OnceCell<SocketAddr>>,
    tokens: Arc<StreamTokens>,
    slots: Arc<Semaphore>,
    pending: Arc<PendingConnections>,
}

impl StreamingServer {
    pub(crate) fn new(wanted: SocketAddr) -> Self {
        Self {
            wanted,
            listens: Arc::default(),
            tokens: Arc::default(),
            slots: Arc::new(Semaphore::new(MAX_STREAMS)),
            pending: PendingConnections::new(MAX_PENDING),
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
    fn slot(&self) -> Result<StreamSlot> {
        Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            let most = format!("as many streams as allowed are open ({MAX_STREAMS})");
            CriError::new(Code::ResourceExhausted, most)
        })
    }

    fn respond(
        &self,
        runtime: Runtime,
        request: Request<Incoming>,
        pending: &PendingConnection,
    ) -> Response<upgrade::UpgradeBody> {
        let path = request.uri().path().to_owned();
        let mut parts = path.trim_start_matches('/').split('/');
        let (kind, token, rest) = (parts.next(), parts.next(), parts.next());
        let found = match (kind, token, rest) {
            (Some(kind), Some(token), None) => {
                self.tokens.redeem(token).filter(|wanted| wanted.kind() == kind)
            }
            _ => None,
        };
        let Some(wanted) = found else { return upgrade::error_response(404, "404 page not found") };
        let slot = match self.slot() {
            Ok(slot) => slot,
            Err(failure) => return upgrade::error_response(503, &failure.text),
        };
        if !pending.take_out() {
            return upgrade::error_response(503, "too many connections");
        }
        let forwarding = matches!(wanted, StreamRequest::PortForward(_));
        upgrade::begin(forwarding, request, slot, move |carrier, socket| {
            upgrade::serve_stream(runtime, wanted, carrier, socket)
        })
    }
}

/// A permit for a stream.
type StreamSlot = OwnedSemaphorePermit;

/// Accepts every connection; beyond the limit without a token, the oldest are closed.
async fn accept<A>(listener: TcpListener, connections: Arc<PendingConnections>, respond: A)
where
    A: Fn(Request<Incoming>, &PendingConnection) -> Response<upgrade::UpgradeBody>
        + Clone
        + Send
        + 'static,
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
        let respond = respond.clone();
        let service = service_fn(move |request| {
            let response = respond(request, &pending);
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        tokio::spawn(async move {
            tokio::select! {
                () = serve_connection(stream, service) => {}
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
async fn serve_connection<S>(stream: TcpStream, service: S)
where
    S: hyper::service::HttpService<
            Incoming,
            ResBody = upgrade::UpgradeBody,
            Error = std::convert::Infallible,
        >,
{
    let _ = stream.set_nodelay(true);
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    match tokio::time::timeout(REQUEST_TIMEOUT, connection).await {
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
            let respond = move |request: Request<Incoming>, pending: &PendingConnection| {
                streams.respond(runtime.clone(), request, pending)
            };
            tokio::spawn(accept(listener, connections, respond));
        };
        self.streams.address(serve).await
    }

    /// A one-time URL for a request.
    pub(crate) async fn stream_address(&self, wanted: StreamRequest) -> Result<String> {
        self.check_wanted(&wanted)?;
        let address = self.listen_for_streams().await?;
        let kind = wanted.kind();
        let token = self.streams.tokens.issue(wanted)?;
        Ok(format!("http://{address}/{kind}/{token}"))
    }

    /// A handle by which a client in this process passes a connection for a request.
    pub(crate) fn open_stream(&self, wanted: StreamRequest) -> Result<InProcessStream> {
        self.check_wanted(&wanted)?;
        let (slot, runtime) = (self.streams.slot()?, self.clone());
        Ok(InProcessStream::new(Box::new(move |connection, early| {
            Box::pin(async move {
                match upgrade::UpgradedSocket::given(connection, early) {
                    Ok(socket) => {
                        upgrade::serve_stream(
                            runtime,
                            wanted,
                            upgrade::StreamCarrier::of_given(),
                            socket,
                        )
                        .await;
                    }
                    Err(error) => tracing::error!(%error, "a connection that was given"),
                }
                drop(slot);
            })
        })))
    }

    fn check_wanted(&self, wanted: &StreamRequest) -> Result<()> {
        match wanted {
            StreamRequest::Exec(v1::ExecRequest { container_id, .. })
            | StreamRequest::Attach(v1::AttachRequest { container_id, .. }) => {
                check_streams(commands::streams_of(wanted))?;
                self.running_container(container_id).map(drop)
            }
            StreamRequest::PortForward(request) => {
                let sandbox = self
                    .record_store
                    .sandbox(&request.pod_sandbox_id)
                    .doing(format!("failed to find sandbox {:?}", request.pod_sandbox_id))?;
                if sandbox.record().stage() != crate::records::SandboxStage::Ready {
                    return Err(CriError::plain("sandbox container is not running"));
                }
                Ok(())
            }
        }
    }
}

/// upstream: k8s.io/streaming validateExecRequest
fn check_streams(has: session::CommandStreams) -> Result<()> {
    if has.tty && has.stderr {
        return Err(CriError::invalid("tty and stderr cannot both be true"));
    }
    if !(has.stdin || has.stdout || has.stderr) {
        return Err(CriError::invalid("one of stdin, stdout, or stderr must be set"));
    }
    Ok(())
}
