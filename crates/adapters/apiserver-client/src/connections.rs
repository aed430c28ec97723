//! A few connections, each carrying many requests.
//!
//! Rule: a connection of an older generation, or one on which a request failed, takes no new
//! requests, and closes when its last one is done. Never more requests on a connection than the
//! server allows, and never so many that unread responses could block each other. Knows nothing
//! about requests.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::{ClusterAccess, ServerAddress};
use crate::batching_socket::BatchingSocket;
use crate::credentials::CredentialsSnapshot;
use crate::proxy::ProxyAddress;
use crate::proxy_tunnel::{ServerStream, open_tunnel};

/// An API server allows 100 streams; beyond this another connection is opened.
const STREAMS: usize = 64;
/// Stands for "the server has not sent its stream limit yet". It sends it at once; until then
/// requests wait, because those beyond the limit would queue up inside the connection, out of
/// sight.
const UNKNOWN_STREAM_LIMIT: usize = 97;
const MAX_PAUSE: Duration = Duration::from_millis(300);
/// Flow-control window of one request; a connection's is as large as those of all its requests
/// together.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

pub(crate) type Body = Full<Bytes>;

/// How a dead connection is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pings {
    pub every: Duration,
    pub answered_within: Duration,
}

#[derive(Debug)]
pub(crate) struct ConnectionPool {
    server: ServerAddress,
    proxy: Option<ProxyAddress>,
    server_name: Option<String>,
    pings: Pings,
    /// Data that arrives within this time is read together; zero reads it as it arrives.
    batch_interval: Duration,
    open: Mutex<PoolState>,
    /// Held while connecting, so that concurrent requests share the result.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct PoolState {
    entries: Vec<PooledConnection>,
    next_id: u64,
    /// Aborted when this is dropped.
    drivers: JoinSet<()>,
}

#[derive(Debug)]
struct PooledConnection {
    id: u64,
    generation: u64,
    sender: RequestSender,
    in_flight: Arc<AtomicUsize>,
}

#[derive(Debug, Clone)]
enum RequestSender {
    Http1(Arc<tokio::sync::Mutex<http1::SendRequest<Body>>>),
    Http2 { sender: http2::SendRequest<Body>, allowed: Arc<AtomicUsize> },
}

/// A slot for one request on a connection; to be kept until its response was read.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    id: u64,
    sender: RequestSender,
    in_flight: Arc<AtomicUsize>,
    /// No request was sent on this connection before.
    pub(crate) fresh: bool,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) cause: String,
    /// The request was certainly not sent.
    pub(crate) unsent: bool,
}

impl ConnectionPool {
    pub(crate) fn new(access: &ClusterAccess, pings: Pings, batch_interval: Duration) -> Self {
        Self {
            server: access.server.clone(),
            proxy: access.proxy.clone(),
            server_name: access.tls_server_name.clone(),
            pings,
            batch_interval,
            open: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// A slot on a connection of this generation; connects if there is none.
    pub(crate) async fn slot(&self, snapshot: &CredentialsSnapshot) -> Result<RequestSlot, String> {
        if let Some(slot) = self.free_slot(snapshot.generation) {
            return Ok(slot);
        }
        let _alone = self.connecting.lock().await;
        if let Some(slot) = self.free_slot(snapshot.generation) {
            return Ok(slot);
        }
        // Boxed: rare and large; every request that waits here would otherwise carry its size.
        tokio::time::timeout(CONNECT_WITHIN, Box::pin(self.connect(snapshot)))
            .await
            .map_err(|_| format!("{}: no connection in 10s", self.route()))?
    }

    /// Where the connections lead, for messages.
    pub(crate) fn route(&self) -> String {
        match &self.proxy {
            None => self.server.authority(),
            Some(proxy) => format!("{} through the proxy {proxy}", self.server.authority()),
        }
    }

    /// Sends no further requests on this connection.
    pub(crate) fn retire(&self, slot: &RequestSlot) {
        self.lock().entries.retain(|entry| entry.id != slot.id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_slot(&self, generation: u64) -> Option<RequestSlot> {
        let mut open = self.lock();
        while open.drivers.try_join_next().is_some() {}
        // A request that started with older credentials may use a connection with newer ones.
        open.entries.retain(|entry| entry.generation >= generation && !entry.sender.is_closed());
        open.entries.iter().find_map(|entry| {
            let busy = entry.in_flight.load(Ordering::Relaxed);
            (busy < entry.sender.capacity()).then(|| entry.slot(false))
        })
    }

    async fn connect(&self, snapshot: &CredentialsSnapshot) -> Result<RequestSlot, String> {
        let failed = |error: String| format!("{}: {error}", self.route());
        let stream = self.connect_socket(snapshot).await.map_err(failed)?;
        let Some(tls) = &snapshot.tls else {
            return self.handshake(stream, false, snapshot.generation).await;
        };
        let name = self.server_name.as_ref().unwrap_or(&self.server.host);
        let stream = connect_tls(tls.clone(), name, stream).await.map_err(failed)?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.handshake(stream, http2, snapshot.generation).await
    }

    /// A connection to the server, or a tunnel through the proxy to it.
    async fn connect_socket(&self, snapshot: &CredentialsSnapshot) -> Result<ServerStream, String> {
        let at = match &self.proxy {
            None => (self.server.host.as_str(), self.server.port),
            Some(proxy) => (proxy.host.as_str(), proxy.port),
        };
        let stream = TcpStream::connect(at).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = BatchingSocket::new(stream, self.batch_interval);
        let stream = stream.map_err(|error| format!("no timer: {error}"))?;
        let Some(proxy) = &self.proxy else { return Ok(ServerStream::Plain(stream)) };
        let mut stream = if proxy.tls {
            let tls = snapshot.tls.as_ref().ok_or("no TLS settings for the proxy")?;
            let mut tls = ClientConfig::clone(tls);
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            let stream = connect_tls(Arc::new(tls), &proxy.host, stream).await;
            ServerStream::Tls(Box::new(stream.map_err(|error| format!("to the proxy: {error}"))?))
        } else {
            ServerStream::Plain(stream)
        };
        open_tunnel(&mut stream, proxy, &self.server.authority()).await?;
        Ok(stream)
    }

    async fn handshake<S>(
        &self,
        stream: S,
        http2: bool,
        generation: u64,
    ) -> Result<RequestSlot, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let failed = |error: hyper::Error| format!("{}: {error}", self.route());
        let stream = TokioIo::new(stream);
        if http2 {
            let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_max_send_streams(UNKNOWN_STREAM_LIMIT)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .keep_alive_interval(self.pings.every)
                .keep_alive_timeout(self.pings.answered_within)
                .keep_alive_while_idle(true)
                .handshake(stream)
                .await
                .map_err(failed)?;
            let mut pause = Duration::from_millis(1);
            while connection.current_max_send_streams() == UNKNOWN_STREAM_LIMIT && pause < MAX_PAUSE
            {
                tokio::time::sleep(pause).await;
                pause = pause.mul_f32(1.5);
            }
            let allowed = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
            let sender = RequestSender::Http2 { sender, allowed: allowed.clone() };
            // Only the connection itself learns when the server changes its stream limit.
            let driver = std::future::poll_fn(move |context| {
                let outcome = Pin::new(&mut connection).poll(context);
                allowed.store(connection.current_max_send_streams(), Ordering::Relaxed);
                outcome
            });
            Ok(self.register(sender, generation, driver))
        } else {
            let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
            let sender = RequestSender::Http1(Arc::new(tokio::sync::Mutex::new(sender)));
            Ok(self.register(sender, generation, connection))
        }
    }

    fn register<F>(&self, sender: RequestSender, generation: u64, driver: F) -> RequestSlot
    where
        F: Future<Output = Result<(), hyper::Error>> + Send + 'static,
    {
        let mut open = self.lock();
        open.next_id += 1;
        // The requests on this connection get its error; it is not reported anywhere else.
        open.drivers.spawn(async move { drop(driver.await) });
        let entry = PooledConnection {
            id: open.next_id,
            generation,
            sender,
            in_flight: Arc::new(AtomicUsize::new(0)),
        };
        let slot = entry.slot(true);
        open.entries.push(entry);
        slot
    }
}

async fn connect_tls<S>(
    config: Arc<ClientConfig>,
    name: &str,
    stream: S,
) -> Result<TlsStream<S>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| format!("no name for a certificate: {error}"))?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    connected.map_err(|error| format!("TLS: {error}"))
}

impl PooledConnection {
    fn slot(&self, fresh: bool) -> RequestSlot {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestSlot {
            id: self.id,
            sender: self.sender.clone(),
            in_flight: self.in_flight.clone(),
            fresh,
        }
    }
}

impl RequestSender {
    fn is_closed(&self) -> bool {
        match self {
            // Locked means in use.
            Self::Http1(sender) => sender.try_lock().is_ok_and(|sender| sender.is_closed()),
            Self::Http2 { sender, .. } => sender.is_closed(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Http1(_) => 1,
            Self::Http2 { allowed, .. } => allowed.load(Ordering::Relaxed).clamp(1, STREAMS),
        }
    }
}

impl RequestSlot {
    /// Whether requests carry an absolute URI here, as HTTP/2 requires.
    pub(crate) fn needs_absolute_uri(&self) -> bool {
        matches!(self.sender, RequestSender::Http2 { .. })
    }

    pub(crate) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        let not_ready = |error: hyper::Error| SendError { cause: causes(&error), unsent: true };
        let answer = match &self.sender {
            RequestSender::Http1(sender) => {
                let mut sender = sender.lock().await;
                sender.ready().await.map_err(not_ready)?;
                sender.try_send_request(request).await
            }
            RequestSender::Http2 { sender, .. } => {
                let mut sender = sender.clone();
                sender.ready().await.map_err(not_ready)?;
                sender.try_send_request(request).await
            }
        };
        answer.map_err(|mut error| SendError {
            unsent: error.take_message().is_some(),
            cause: causes(&error.into_error()),
        })
    }
}

/// An error with its sources, since the outermost one rarely says why.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
