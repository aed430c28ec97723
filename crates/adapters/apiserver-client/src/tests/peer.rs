//! A scripted peer, over plain HTTP/1 or over TLS with HTTP/2.
//!
//! Rule: it records every request and connection, and misbehaves only where the script says so.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::access::{ClusterAccess, Impersonation, ServerAddress, Trust};
use crate::client::{ApiClient, ClientOptions, JitterSource};

/// A request as the peer received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) authorization: String,
    pub(super) content_type: String,
    /// The connection that it came on, counted from one.
    pub(super) connection: usize,
    /// The client's certificate; empty if it has none.
    pub(super) certificate: Bytes,
}

/// A part of a response's body.
#[derive(Debug, Clone)]
pub(super) enum BodyChunk {
    Data(Bytes),
    Wait(Duration),
    /// Nothing more, and no end either.
    Hang,
    /// The connection is lost.
    Cut,
    /// The same bytes for ever.
    Endless(Bytes),
}

#[derive(Debug, Clone)]
pub(super) struct ScriptedReply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<BodyChunk>,
    /// Before the head is sent.
    hang: bool,
}

pub(super) fn json(status: u16, text: impl Into<String>) -> ScriptedReply {
    stream(status, vec![BodyChunk::Data(Bytes::from(text.into()))])
}

pub(super) fn stream(status: u16, pieces: Vec<BodyChunk>) -> ScriptedReply {
    ScriptedReply { status, headers: Vec::new(), pieces, hang: false }
}

pub(super) fn silence() -> ScriptedReply {
    ScriptedReply { hang: true, ..stream(200, vec![]) }
}

pub(super) fn line(text: &str) -> BodyChunk {
    BodyChunk::Data(Bytes::from(format!("{text}\n")))
}

impl ScriptedReply {
    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

type Script = dyn Fn(usize, &RecordedRequest) -> ScriptedReply + Send + Sync;

struct ServerRecord {
    script: Box<Script>,
    requests: Mutex<Vec<RecordedRequest>>,
    connections: AtomicUsize,
    produced: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

pub(super) struct ScriptedApiServer {
    address: SocketAddr,
    record: Arc<ServerRecord>,
    _tasks: JoinSet<()>,
}

impl ScriptedApiServer {
    /// Answers plain HTTP/1; the script gets the number of earlier requests.
    pub(super) async fn plain(
        script: impl Fn(usize, &RecordedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        Self::start(None, None, Box::new(script)).await
    }

    pub(super) async fn secure(
        config: ServerConfig,
        streams: Option<u32>,
        script: impl Fn(usize, &RecordedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(Arc::new(config)), streams, Box::new(script)).await
    }

    async fn start(
        tls: Option<Arc<ServerConfig>>,
        streams: Option<u32>,
        script: Box<Script>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("an address");
        let record = Arc::new(ServerRecord {
            script,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            produced: Arc::default(),
            dropped: Arc::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, streams, record.clone()));
        Self { address, record, _tasks: tasks }
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.record.requests.lock().expect("notes").clone()
    }

    pub(super) fn targets(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.target).collect()
    }

    pub(super) fn connections(&self) -> usize {
        self.record.connections.load(Ordering::SeqCst)
    }

    /// How many bytes of endless responses the client has read.
    pub(super) fn produced(&self) -> usize {
        self.record.produced.load(Ordering::SeqCst)
    }

    /// How many responses have ended or were dropped.
    pub(super) fn dropped(&self) -> usize {
        self.record.dropped.load(Ordering::SeqCst)
    }

    /// Access without TLS and without credentials.
    pub(super) fn access(&self) -> ClusterAccess {
        ClusterAccess {
            server: ServerAddress {
                tls: false,
                host: "127.0.0.1".to_owned(),
                port: self.address.port(),
                prefix: String::new(),
            },
            proxy: None,
            trust: Trust::System,
            tls_server_name: None,
            certificate: None,
            renewed_certificate: None,
            token: None,
            exec: None,
            impersonation: Impersonation::default(),
            namespace: "default".to_owned(),
        }
    }

    pub(super) fn client(&self) -> ApiClient {
        ApiClient::new(self.access(), options()).expect("a client")
    }
}

/// Short deadlines, no rate limit, no jitter.
pub(super) fn options() -> ClientOptions {
    ClientOptions {
        rate: None,
        deadline: Duration::from_secs(3),
        page_deadline: Duration::from_secs(3),
        jitter: JitterSource::new(|| 0.0),
        ..ClientOptions::default()
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    streams: Option<u32>,
    record: Arc<ServerRecord>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let connection = record.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let (tls, record) = (tls.clone(), record.clone());
        connections.spawn(async move {
            let Some(tls) = tls else {
                let service = service_fn(move |request| {
                    answer(record.clone(), request, connection, Bytes::new())
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                return;
            };
            let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await else {
                return;
            };
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let shown =
                shown.map(|certificate| Bytes::copy_from_slice(certificate)).unwrap_or_default();
            let service = service_fn(move |request| {
                answer(record.clone(), request, connection, shown.clone())
            });
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(streams)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    record: Arc<ServerRecord>,
    request: Request<Incoming>,
    connection: usize,
    certificate: Bytes,
) -> Result<Response<ScriptedBody>, std::io::Error> {
    let header = |name: &str| {
        let value = request.headers().get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let target = request.uri().path_and_query().map(ToString::to_string);
    let recorded = RecordedRequest {
        method: request.method().to_string(),
        target: target.unwrap_or_default(),
        authorization: header("authorization"),
        content_type: header("content-type"),
        connection,
        certificate,
    };
    let before = {
        let mut all = record.requests.lock().expect("notes");
        all.push(recorded.clone());
        all.len() - 1
    };
    let reply = (record.script)(before, &recorded);
    if reply.hang {
        std::future::pending::<()>().await;
    }
    if matches!(reply.pieces.first(), Some(BodyChunk::Cut)) {
        return Err(std::io::Error::other("the script says so"));
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    let body = ScriptedBody {
        pieces: reply.pieces.into(),
        waiting: None,
        produced: record.produced.clone(),
        dropped: record.dropped.clone(),
    };
    response.body(body).map_err(std::io::Error::other)
}

struct ScriptedBody {
    pieces: VecDeque<BodyChunk>,
    waiting: Option<Pin<Box<tokio::time::Sleep>>>,
    produced: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for ScriptedBody {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl hyper::body::Body for ScriptedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                std::task::ready!(waiting.as_mut().poll(context));
                self.waiting = None;
            }
            return match self.pieces.pop_front() {
                None => Poll::Ready(None),
                Some(BodyChunk::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(BodyChunk::Wait(span)) => {
                    self.waiting = Some(Box::pin(tokio::time::sleep(span)));
                    continue;
                }
                Some(BodyChunk::Hang) => {
                    self.pieces.push_front(BodyChunk::Hang);
                    Poll::Pending
                }
                Some(BodyChunk::Cut) => {
                    Poll::Ready(Some(Err(std::io::Error::other("the script says so"))))
                }
                Some(BodyChunk::Endless(data)) => {
                    self.produced.fetch_add(data.len(), Ordering::SeqCst);
                    self.pieces.push_front(BodyChunk::Endless(data.clone()));
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
            };
        }
    }
}
