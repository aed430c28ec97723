//! The agent's own sockets: how they appear, which users may connect, how many.
//!
//! Rule: a socket is created anew each time: whatever socket was at its path is removed, and nothing
//! that is not a socket. Clients may send any authority. A serving ends when the socket's file is
//! not the one that was created, so that it can be created again.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use any_authority::AuthorityFilterStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::codegen::tokio_stream::Stream;
use tonic::service::Routes;

/// Connections to one socket at a time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
const STREAMS_OF_CONNECTION: u32 = 64;
/// After a failed accept: most likely no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The largest request: a name or two.
pub(crate) const REQUEST_SIZE_LIMIT: usize = 64 * 1024;

/// Creates the directory if it is missing.
pub(crate) fn make_dir(dir: &Path) -> Result<(), String> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
    made.map_err(|error| format!("cannot create the directory {}: {error}", dir.display()))
}

/// Listens at `path`, for the owner only.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, String> {
    let describe = |what: &str, error: &io::Error| format!("{what} {}: {error}", path.display());
    if let Some(dir) = path.parent() {
        make_dir(dir)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(describe("cannot look at", &error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(format!("{} is there and is no socket; remove it", path.display()));
        }
        Ok(_) => fs::remove_file(path).map_err(|error| describe("cannot remove", &error))?,
    }
    let listener =
        UnixListener::bind(path).map_err(|error| describe("cannot listen on", &error))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|error| describe("cannot set the mode of", &error))?;
    Ok(listener)
}

/// Serves these routes until an error.
pub(crate) async fn serve(listener: UnixListener, routes: Routes) -> String {
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_OF_CONNECTION)
        .add_routes(routes)
        .serve_with_incoming(incoming(listener))
        .await;
    served.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string())
}

/// Device and inode of the file at a path.
pub(crate) fn file_identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Connections as they come. The accepting task ends with the stream.
fn incoming(listener: UnixListener) -> Incoming {
    let (sender, receiver) = mpsc::channel(1);
    let accepting = tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            let stream = loop {
                match listener.accept().await {
                    Ok((stream, _)) => break stream,
                    Err(error) => {
                        tracing::warn!(%error, "A client was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            let stream = AuthorityFilterStream::new(stream);
            if sender.send(Client { stream, _permit: permit }).await.is_err() {
                return;
            }
        }
    });
    Incoming { receiver, accepting }
}

struct Incoming {
    receiver: mpsc::Receiver<Client>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Stream for Incoming {
    type Item = io::Result<Client>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context).map(|client| client.map(Ok))
    }
}

/// One client; its place is free again when it disconnects.
struct Client {
    stream: AuthorityFilterStream<UnixStream>,
    _permit: OwnedSemaphorePermit,
}

impl tonic::transport::server::Connected for Client {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
