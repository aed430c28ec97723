//! The connection that carries a stream: one to the streaming server, or a socket that a client in
//! this process passed.
//!
//! Rule: both are kernel sockets whose other end may be half closed, closed or lost, and the kernel
//! reports which; the code that serves a stream sees no difference.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

#[derive(Debug)]
pub(super) enum StreamSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl StreamSocket {
    /// From a unix stream socket. Must be called inside a tokio runtime.
    pub(super) fn of_descriptor(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket).map(Self::Unix)
    }

    pub(super) fn into_split(self) -> (SocketReader, SocketWriter) {
        match self {
            Self::Tcp(stream) => {
                let (reading, writing) = stream.into_split();
                (SocketReader::Tcp(reading), SocketWriter::Tcp(writing))
            }
            Self::Unix(stream) => {
                let (reading, writing) = stream.into_split();
                (SocketReader::Unix(reading), SocketWriter::Unix(writing))
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum SocketReader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

impl SocketReader {
    /// Waits until the peer has closed its side or is lost, without reading.
    pub(super) async fn closed(&self) -> io::Result<()> {
        // Urgent data is not enabled, so this event means the end.
        let ready = match self {
            Self::Tcp(half) => half.ready(Interest::PRIORITY).await,
            Self::Unix(half) => half.ready(Interest::PRIORITY).await,
        };
        ready.map(drop)
    }
}

impl AsyncRead for SocketReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_read(context, buffer),
            Self::Unix(half) => Pin::new(half).poll_read(context, buffer),
        }
    }
}

/// Dropping it shuts down the writing side.
#[derive(Debug)]
pub(super) enum SocketWriter {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl AsyncWrite for SocketWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_write(context, bytes),
            Self::Unix(half) => Pin::new(half).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_flush(context),
            Self::Unix(half) => Pin::new(half).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_shutdown(context),
            Self::Unix(half) => Pin::new(half).poll_shutdown(context),
        }
    }
}
