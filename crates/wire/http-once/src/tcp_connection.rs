//! A TCP connection that closes without TIME_WAIT and remembers the first bytes received.
//!
//! Rule: on drop the peer first gets a FIN and then a RST: it reads end-of-file, not an error, and
//! no local port stays in use for a minute. Upstream lingers for a second to that purpose
//! (probe/dialer_others.go); that would block a thread here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::http_error::{HttpError, errno_words};
use crate::lookups;

/// How many of the first bytes received are remembered.
const FIRST_BYTES: usize = 16;

#[derive(Debug)]
pub struct TcpConnection {
    stream: TcpStream,
    peer: SocketAddr,
    first: Vec<u8>,
}

/// Connects to a host, which may be a name or an address.
pub async fn dial(host: &str, port: u16) -> Result<TcpConnection, HttpError> {
    let mut http_error =
        HttpError::Lookup { host: host.to_owned(), reason: "no such host".to_owned() };
    for address in addresses(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(TcpConnection { stream, peer: address, first: Vec::new() }),
            Err(error) => http_error = HttpError::Dial { address, reason: errno_words(&error) },
        }
    }
    Err(http_error)
}

async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, HttpError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // Not the async runtime's own lookup: while it hangs it occupies a thread that others need.
    lookups::SYSTEM.addresses(host, port).await
}

impl TcpConnection {
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The first bytes received from the peer.
    pub fn first_bytes(&self) -> &[u8] {
        &self.first
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        // Both may fail if the peer closed first; then there is nothing left to do.
        let _ended = rustix::net::shutdown(&self.stream, Shutdown::Write);
        let _taken = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}

impl AsyncRead for TcpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let missing = FIRST_BYTES.saturating_sub(self.first.len());
        if missing > 0 && matches!(polled, Poll::Ready(Ok(()))) {
            let new = &buffer.filled()[before..];
            self.first.extend_from_slice(&new[..new.len().min(missing)]);
        }
        polled
    }
}

impl AsyncWrite for TcpConnection {
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
