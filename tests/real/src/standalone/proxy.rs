//! A proxy socket between an agent and a real runtime that injects faults.
//!
//! Rule: everything passes through to the real runtime and back unless a fault is set: calls that
//! name a certain container, pod or sandbox are held until they are released; a container's state
//! is reported as unknown; the event stream is cut, emptied or duplicated, or not implemented, as
//! in old runtimes. It invents no other response.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use bytes::{Buf, Bytes, BytesMut};
use cri_wire::v1;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

type ProxyError = std::io::Error;
type AnyBody = UnsyncBoxBody<Bytes, ProxyError>;

fn proxy_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ProxyError {
    ProxyError::other(error)
}

/// How the event stream is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventStreamMode {
    #[default]
    Whole,
    /// The stream is open and nothing comes.
    Lost,
    /// Each event comes three times.
    Repeated,
    /// Streams end, and new ones are refused.
    Cut,
    /// Streams end, and from then on the call is unimplemented.
    Unknown,
}

impl EventStreamMode {
    fn has_no_stream(self) -> bool {
        matches!(self, Self::Cut | Self::Unknown)
    }
}

#[derive(Debug, Default)]
struct ProxyFaults {
    /// Calls whose request contains one of these are held.
    held_names: watch::Sender<Vec<String>>,
    waiting: AtomicUsize,
    /// The container whose state is reported as unknown.
    unknown: Mutex<Option<String>>,
    events: watch::Sender<EventStreamMode>,
    streams: AtomicUsize,
    /// How many streams have ended.
    ended: AtomicUsize,
}

/// It lives as long as the test's process.
pub struct Proxy {
    socket: PathBuf,
    faults: Arc<ProxyFaults>,
}

impl Proxy {
    /// Listens on `socket` for clients of the runtime at `runtime`.
    pub fn start(socket: &Path, runtime: &Path) -> Result<Self> {
        let faults = Arc::new(ProxyFaults::default());
        let listener = std::os::unix::net::UnixListener::bind(socket)
            .with_context(|| socket.display().to_string())?;
        listener.set_nonblocking(true)?;
        let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (runtime, shared) = (runtime.to_owned(), faults.clone());
        std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            tasks.block_on(async {
                let Ok(listener) = UnixListener::from_std(listener) else { return };
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(proxy_connection(stream, runtime.clone(), shared.clone()));
                }
            });
        })?;
        Ok(Self { socket: socket.to_owned(), faults })
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// From now on calls are held that name one of these: an id, or a pod's name.
    pub fn hold(&self, names: &[&str]) {
        self.faults.held_names.send_replace(names.iter().map(|name| (*name).to_owned()).collect());
    }

    pub fn release(&self) {
        self.hold(&[]);
    }

    /// How many calls are held now.
    pub fn waiting(&self) -> usize {
        self.faults.waiting.load(Ordering::SeqCst)
    }

    /// Sets the container whose state is reported as unknown; `None` for no container.
    pub fn set_state_unknown(&self, container: Option<&str>) {
        let mut unknown = self.faults.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        *unknown = container.map(ToOwned::to_owned);
    }

    pub fn events(&self, events: EventStreamMode) {
        self.faults.events.send_replace(events);
    }

    /// How many event streams were opened so far.
    pub fn streams(&self) -> usize {
        self.faults.streams.load(Ordering::SeqCst)
    }

    /// Whether every stream that was opened has ended.
    pub fn no_stream_is_open(&self) -> bool {
        self.faults.ended.load(Ordering::SeqCst) == self.streams()
    }
}

/// One client connection, with a connection to the runtime that ends with it.
async fn proxy_connection(
    caller: UnixStream,
    runtime: PathBuf,
    faults: Arc<ProxyFaults>,
) -> Option<()> {
    let stream = UnixStream::connect(&runtime).await.ok()?;
    let (sender, connection) =
        client::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
    let behind = tokio::spawn(connection);
    let service = service_fn(move |request| {
        let (sender, faults) = (sender.clone(), faults.clone());
        async move { pass(request, sender, &faults).await }
    });
    let serving =
        server::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(caller), service);
    tokio::select! {
        _ = serving => {}
        _ = behind => {}
    }
    Some(())
}

async fn pass(
    request: Request<Incoming>,
    mut sender: client::SendRequest<Full<Bytes>>,
    faults: &Arc<ProxyFaults>,
) -> Result<Response<AnyBody>, ProxyError> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(proxy_error)?.to_bytes();
    let call = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    hold(faults, &body).await;
    let events = *faults.events.borrow();
    if call == "GetContainerEvents" && events.has_no_stream() {
        // UNIMPLEMENTED or UNAVAILABLE.
        return Ok(grpc_status(if events == EventStreamMode::Unknown { "12" } else { "14" }));
    }
    let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await;
    let answer = answer.map_err(proxy_error)?;
    let (mut head, body) = answer.into_parts();
    match call.as_str() {
        "GetContainerEvents" => {
            faults.streams.fetch_add(1, Ordering::SeqCst);
            let (frames, passed) = mpsc::channel(16);
            let faults = faults.clone();
            tokio::spawn(async move {
                pass_events(body, frames, faults.clone()).await;
                faults.ended.fetch_add(1, Ordering::SeqCst);
            });
            Ok(Response::from_parts(head, Frames(passed).boxed_unsync()))
        }
        "ContainerStatus" | "ListContainers" => {
            head.headers.remove("content-length");
            let whole = body.collect().await.map_err(proxy_error)?;
            let trailers = whole.trailers().cloned();
            let bytes = with_unknown_state(&call, whole.to_bytes(), faults);
            let body = Full::new(bytes).map_err(|never| match never {});
            let body = body.with_trailers(async move { trailers.map(Ok) });
            Ok(Response::from_parts(head, body.boxed_unsync()))
        }
        _ => Ok(Response::from_parts(head, body.map_err(proxy_error).boxed_unsync())),
    }
}

/// Waits while the request names something that is held.
async fn hold(faults: &ProxyFaults, body: &[u8]) {
    let mut held_names = faults.held_names.subscribe();
    let names = |name: &String| body.windows(name.len()).any(|part| part == name.as_bytes());
    let is_free = |held_names: &Vec<String>| !held_names.iter().any(names);
    if is_free(&held_names.borrow()) {
        return;
    }
    // Also decremented when the caller cancels the call and this is dropped.
    let _waiting = WaitingGuard::new(&faults.waiting);
    let _ = held_names.wait_for(is_free).await;
}

struct WaitingGuard<'a>(&'a AtomicUsize);

impl<'a> WaitingGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A gRPC status without a body.
fn grpc_status(status: &'static str) -> Response<AnyBody> {
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    let words = [("content-type", "application/grpc"), ("grpc-status", status)];
    for (name, value) in words {
        answer.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    answer
}

/// A response of one message with the state of the chosen container set to unknown.
fn with_unknown_state(call: &str, bytes: Bytes, faults: &ProxyFaults) -> Bytes {
    let unknown = faults.unknown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (Some(id), Some(message)) = (unknown, bytes.get(5..)) else { return bytes };
    let state = v1::ContainerState::ContainerUnknown as i32;
    let changed = if call == "ContainerStatus" {
        let Ok(mut answer) = v1::ContainerStatusResponse::decode(message) else { return bytes };
        if let Some(status) = answer.status.as_mut().filter(|status| status.id == id) {
            status.state = state;
        }
        answer.encode_to_vec()
    } else {
        let Ok(mut answer) = v1::ListContainersResponse::decode(message) else { return bytes };
        for container in answer.containers.iter_mut().filter(|container| container.id == id) {
            container.state = state;
        }
        answer.encode_to_vec()
    };
    let mut framed = vec![0];
    framed.extend(u32::try_from(changed.len()).unwrap_or_default().to_be_bytes());
    framed.extend(changed);
    framed.into()
}

/// The body's frames as they are received.
struct Frames(mpsc::Receiver<Result<Frame<Bytes>, ProxyError>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        self.0.poll_recv(context)
    }
}

/// Passes complete events on, or applies the stream's fault.
async fn pass_events(
    mut body: Incoming,
    frames: mpsc::Sender<Result<Frame<Bytes>, ProxyError>>,
    faults: Arc<ProxyFaults>,
) -> Option<()> {
    let mut mode = faults.events.subscribe();
    let mut buffer = BytesMut::new();
    loop {
        let frame = tokio::select! {
            () = until_cut(&mut mode) => {
                frames.send(Err(proxy_error("the stream is cut"))).await.ok()?;
                return None;
            }
            frame = body.frame() => frame?,
        };
        let frame = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => data,
            Ok(Err(trailers)) => {
                frames.send(Ok(trailers)).await.ok()?;
                continue;
            }
            Err(error) => {
                frames.send(Err(proxy_error(error))).await.ok()?;
                return None;
            }
        };
        buffer.extend_from_slice(&frame);
        while let Some(event) = next_message(&mut buffer) {
            let times = match *mode.borrow() {
                EventStreamMode::Lost | EventStreamMode::Cut | EventStreamMode::Unknown => 0,
                EventStreamMode::Whole => 1,
                EventStreamMode::Repeated => 3,
            };
            for _ in 0..times {
                frames.send(Ok(Frame::data(event.clone()))).await.ok()?;
            }
        }
    }
}

async fn until_cut(mode: &mut watch::Receiver<EventStreamMode>) {
    let _ = mode.wait_for(|mode| mode.has_no_stream()).await;
}

/// The next complete gRPC message, with its five-byte prefix.
fn next_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = usize::try_from(buffer.get(1..5)?.get_u32()).ok()? + 5;
    (buffer.len() >= length).then(|| buffer.split_to(length).freeze())
}
