//! Sources of connections.
//!
//! Rule: accepting is quick and cancel-safe; slow work (a TLS handshake) happens in the
//! connection's own task.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A source of connections.
pub trait ConnectionListener: Send + Sync + 'static {
    /// An accepted connection from which nothing was read yet.
    type Accepted: Send + 'static;
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// What is known of the client before its first request.
    type Peer: Send + Sync + 'static;

    /// The next connection. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Accepted>> + Send;

    /// Does the handshake. `None` if it fails.
    fn open(
        &self,
        accepted: Self::Accepted,
    ) -> impl Future<Output = Option<(Self::Stream, Self::Peer)>> + Send;
}

impl ConnectionListener for TcpListener {
    type Accepted = (TcpStream, SocketAddr);
    type Stream = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&self) -> io::Result<Self::Accepted> {
        Self::accept(self).await
    }

    async fn open(&self, accepted: Self::Accepted) -> Option<(TcpStream, SocketAddr)> {
        Some(accepted)
    }
}

impl ConnectionListener for UnixListener {
    type Accepted = UnixStream;
    type Stream = UnixStream;
    /// `None` if the kernel does not report it.
    type Peer = Option<UCred>;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }

    async fn open(&self, accepted: UnixStream) -> Option<(UnixStream, Option<UCred>)> {
        let peer = accepted.peer_cred().ok();
        Some((accepted, peer))
    }
}
