//! Serving CRI: on a unix socket, or in this process without one.
//!
//! Rule: the socket is the owner's alone, and appears by a rename, so that a client either finds a
//! server that answers or none. Clients may send any authority. Ending the server touches no
//! container. Calls that do more than look are counted, for those who wait until work is done.

use std::future::Future;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use any_authority::AnyAuthority;
use cri_wire::MESSAGE_SIZE_LIMIT;
use cri_wire::v1::image_service_server::ImageServiceServer;
use cri_wire::v1::runtime_service_server::RuntimeServiceServer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tonic::codegen::tokio_stream::Stream;
use tonic::service::Routes;

use crate::failure::{Doing as _, Failure, Result};
use crate::runtime::Runtime;

#[cfg(test)]
mod tests;

/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

impl Runtime {
    /// Both services as one tower service: what a client in this process calls directly.
    pub fn routes(&self) -> Routes {
        let runtime = RuntimeServiceServer::new(self.clone())
            .max_decoding_message_size(MESSAGE_SIZE_LIMIT)
            .max_encoding_message_size(MESSAGE_SIZE_LIMIT);
        let images = ImageServiceServer::new(self.clone())
            .max_decoding_message_size(MESSAGE_SIZE_LIMIT)
            .max_encoding_message_size(MESSAGE_SIZE_LIMIT);
        Routes::new(runtime).add_service(images)
    }

    /// Serves on a socket until `end` comes; `work` counts calls that do more than look.
    pub async fn serve(
        &self,
        socket: &Path,
        work: watch::Sender<u64>,
        end: impl Future<Output = ()>,
    ) -> Result<()> {
        // Before anybody can ask: an address that cannot be had is told now.
        self.listen_for_streams().await?;
        let (listener, own) = listen(socket).await?;
        let served = tonic::transport::Server::builder()
            .layer(CountWork(Arc::new(work)))
            .add_routes(self.routes())
            .serve_with_incoming_shutdown(Incoming::new(listener), end)
            .await;
        // Another server may have taken the place of one that was removed.
        if identity(socket).is_ok_and(|found| found == own) {
            let _ = std::fs::remove_file(socket);
        }
        served.map_err(|error| Failure::plain(format!("serving {}: {error}", socket.display())))
    }
}

/// Whether a call, by its path, only looks. Clients look every second, for ever.
fn only_looks(path: &str) -> bool {
    let call = path.rsplit('/').next().unwrap_or(path);
    ["List", "Get", "Stream", "Version", "Status", "RuntimeConfig"]
        .iter()
        .any(|it| call.starts_with(it))
        || ["Status", "Stats", "FsInfo"].iter().any(|it| call.ends_with(it))
}

/// Counts calls that do more than look, when they begin and when they end.
#[derive(Clone)]
struct CountWork(Arc<watch::Sender<u64>>);

impl<S> tower::Layer<S> for CountWork {
    type Service = CountedWork<S>;

    fn layer(&self, inner: S) -> CountedWork<S> {
        CountedWork { inner, work: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
struct CountedWork<S> {
    inner: S,
    work: Arc<watch::Sender<u64>>,
}

impl<S, B> tower::Service<tonic::codegen::http::Request<B>> for CountedWork<S>
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
        let works = !only_looks(request.uri().path());
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

/// Which file a path names: device and inode.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Takes the place of a socket without a server, and never of one that a server answers on.
async fn listen(socket: &Path) -> Result<(UnixListener, (u64, u64))> {
    let named = |what: &str| format!("{what} {}", socket.display());
    if UnixStream::connect(socket).await.is_ok() {
        return Err(Failure::plain(format!(
            "another server answers on {}; stop it, or choose another socket with --listen",
            socket.display()
        )));
    }
    if let Some(folder) = socket.parent() {
        crate::durable::make_folder(folder)?;
    }
    // Bound under another name first: nobody connects to a socket that is not listened to yet.
    let beside = socket.with_extension(format!("new-{}", std::process::id()));
    crate::durable::remove_file(&beside)?;
    let listener = UnixListener::bind(&beside).doing(named("listening on"))?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o660))
        .doing(named("mode of"))?;
    let own = identity(&beside).doing(named("looking at"))?;
    std::fs::rename(&beside, socket).doing(named("placing the socket"))?;
    Ok((listener, own))
}

/// Where connections come from.
trait Accept {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>>;
}

impl Accept for UnixListener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>> {
        UnixListener::poll_accept(self, context).map_ok(|(stream, _)| stream)
    }
}

/// Connections as they come. A failed accept (no descriptors left, most likely) is no reason to
/// end; it is tried again after a pause, since the connection that failed is still waiting.
struct Incoming<A> {
    listener: A,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<A> Incoming<A> {
    fn new(listener: A) -> Self {
        Self { listener, pause: None }
    }
}

impl<A: Accept + Unpin> Stream for Incoming<A> {
    type Item = std::io::Result<Connected>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match std::task::ready!(self.listener.poll_accept(context)) {
                Ok(stream) => {
                    return Poll::Ready(Some(Ok(Connected(AnyAuthority::new(stream)))));
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
struct Connected(AnyAuthority<UnixStream>);

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
