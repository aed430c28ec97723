//! Serves CRI: on a unix socket, or in this process without one.
//!
//! Rule: the socket is accessible to its owner only, and appears by a rename, so that a client
//! finds either a server that answers or none. Clients may send any authority. Ending the server
//! affects no container. Calls that do more than read are counted, so that a caller can wait until
//! work is done.

use std::future::Future;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use any_authority::AuthorityFilterStream;
use cri_wire::MESSAGE_SIZE_LIMIT;
use cri_wire::v1::image_service_server::ImageServiceServer;
use cri_wire::v1::runtime_service_server::RuntimeServiceServer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tonic::codegen::tokio_stream::Stream;
use tonic::service::Routes;

use crate::failure::{CallContext as _, CriError, Result};
use crate::runtime::Runtime;

#[cfg(test)]
mod tests;

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

impl Runtime {
    /// Both services as one tower service, for direct calls of a client in this process.
    pub fn routes(&self) -> Routes {
        let runtime = RuntimeServiceServer::new(self.clone())
            .max_decoding_message_size(MESSAGE_SIZE_LIMIT)
            .max_encoding_message_size(MESSAGE_SIZE_LIMIT);
        let images = ImageServiceServer::new(self.clone())
            .max_decoding_message_size(MESSAGE_SIZE_LIMIT)
            .max_encoding_message_size(MESSAGE_SIZE_LIMIT);
        Routes::new(runtime).add_service(images)
    }

    /// Serves on a socket until `end` completes; `work` counts calls that do more than read.
    pub async fn serve(
        &self,
        socket: &Path,
        work: watch::Sender<u64>,
        end: impl Future<Output = ()>,
    ) -> Result<()> {
        // Before any client can call: an address that is not available is an error now.
        self.listen_for_streams().await?;
        let (listener, own) = listen(socket).await?;
        let served = tonic::transport::Server::builder()
            .layer(CountCalls(Arc::new(work)))
            .add_routes(self.routes())
            .serve_with_incoming_shutdown(AcceptStream::new(listener), end)
            .await;
        // Another server may have replaced a socket that was removed.
        if identity(socket).is_ok_and(|found| found == own) {
            let _ = std::fs::remove_file(socket);
        }
        served.map_err(|error| CriError::plain(format!("serving {}: {error}", socket.display())))
    }
}

/// Whether a call, by its path, only reads. Clients poll every second, for ever.
fn is_read_only(path: &str) -> bool {
    let call = path.rsplit('/').next().unwrap_or(path);
    ["List", "Get", "Stream", "Version", "Status", "RuntimeConfig"]
        .iter()
        .any(|it| call.starts_with(it))
        || ["Status", "Stats", "FsInfo"].iter().any(|it| call.ends_with(it))
}

/// Counts calls that do more than read, at their start and at their end.
#[derive(Clone)]
struct CountCalls(Arc<watch::Sender<u64>>);

impl<S> tower::Layer<S> for CountCalls {
    type Service = CountedCalls<S>;

    fn layer(&self, inner: S) -> CountedCalls<S> {
        CountedCalls { inner, work: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
struct CountedCalls<S> {
    inner: S,
    work: Arc<watch::Sender<u64>>,
}

impl<S, B> tower::Service<tonic::codegen::http::Request<B>> for CountedCalls<S>
where
    S: tower::Service<tonic::codegen::http::Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::result::Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: tonic::codegen::http::Request<B>) -> Self::Future {
        let works = !is_read_only(request.uri().path());
        let answered = self.inner.call(request);
        if !works {
            return Box::pin(answered);
        }
        let work = Arc::clone(&self.work);
        Box::pin(async move {
            let count = |count: &mut u64| *count += 1;
            work.send_modify(count);
            let answer = answered.await;
            work.send_modify(count);
            answer
        })
    }
}

/// The identity of a path's file: device and inode.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Replaces a stale socket, and never one that a server answers on.
async fn listen(socket: &Path) -> Result<(UnixListener, (u64, u64))> {
    let named = |what: &str| format!("{what} {}", socket.display());
    if UnixStream::connect(socket).await.is_ok() {
        return Err(CriError::plain(format!(
            "another server answers on {}; stop it, or choose another socket with --listen",
            socket.display()
        )));
    }
    if let Some(dir) = socket.parent() {
        crate::durable::make_dir(dir)?;
    }
    // Bound under another name first, so that no client connects before the socket listens.
    let beside = socket.with_extension(format!("new-{}", std::process::id()));
    crate::durable::remove_file(&beside)?;
    let listener = UnixListener::bind(&beside).doing(named("listening on"))?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o660))
        .doing(named("mode of"))?;
    let own = identity(&beside).doing(named("looking at"))?;
    std::fs::rename(&beside, socket).doing(named("placing the socket"))?;
    Ok((listener, own))
}

/// A source of connections.
trait Accept {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>>;
}

impl Accept for UnixListener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>> {
        UnixListener::poll_accept(self, context).map_ok(|(stream, _)| stream)
    }
}

/// Incoming connections. A failed accept (most likely no descriptors left) does not end the stream;
/// it is retried after a pause, since the connection is still in the backlog.
struct AcceptStream<A> {
    listener: A,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<A> AcceptStream<A> {
    fn new(listener: A) -> Self {
        Self { listener, pause: None }
    }
}

impl<A: Accept + Unpin> Stream for AcceptStream<A> {
    type Item = std::io::Result<Connected>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match std::task::ready!(self.listener.poll_accept(context)) {
                Ok(stream) => {
                    return Poll::Ready(Some(Ok(Connected(AuthorityFilterStream::new(stream)))));
                }
                Err(error) => {
                    tracing::warn!(%error, "a client was not accepted");
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}

/// One client.
struct Connected(AuthorityFilterStream<UnixStream>);

impl tonic::transport::server::Connected for Connected {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl tokio::io::AsyncRead for Connected {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl tokio::io::AsyncWrite for Connected {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
