//! A socket that is read in strides: what comes within a stride is read together.
//!
//! Heartbeats of a large cluster come a few at a time all the time, and each would wake the process
//! for a handful of bytes. Nobody needs one sooner than within a fraction of a second, so after each
//! read the socket rests: it is not even registered with the kernel's event queue, and what comes
//! waits in the kernel, which holds the sender up if there is too much.
//!
//! Rule: costs at most one stride of latency; whoever comes after a quiet time is read at once. A
//! connection is set up at full speed. Writing never waits for a rest.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// For so long a new connection is read at full speed.
const SET_UP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct PacedSocket {
    state: State,
    stride: Duration,
    rests_from: Instant,
    rest: Pin<Box<Sleep>>,
}

#[derive(Debug)]
enum State {
    Awake(TcpStream),
    Resting(std::net::TcpStream),
    /// Only after the kernel refused to have it in its event queue.
    Broken,
}

impl PacedSocket {
    pub(crate) fn new(socket: TcpStream, stride: Duration) -> Self {
        let now = Instant::now();
        Self {
            state: State::Awake(socket),
            stride,
            rests_from: now + SET_UP,
            rest: Box::pin(sleep_until(now)),
        }
    }

    fn rest(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.stride.is_zero() || now < self.rests_from {
            return Ok(());
        }
        if let State::Awake(socket) = std::mem::replace(&mut self.state, State::Broken) {
            self.state = State::Resting(socket.into_std()?);
            self.rest.as_mut().reset(now + self.stride);
        }
        Ok(())
    }

    /// Registers it again, if it rested.
    fn wake(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if matches!(self.state, State::Resting(_))
            && let State::Resting(socket) = std::mem::replace(&mut self.state, State::Broken)
        {
            self.state = State::Awake(TcpStream::from_std(socket)?);
        }
        match &mut self.state {
            State::Awake(socket) => Ok(Pin::new(socket)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for PacedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if matches!(self.state, State::Resting(_)) {
            ready!(self.rest.as_mut().poll(context));
        }
        let before = buffer.filled().len();
        ready!(self.wake()?.poll_read(context, buffer))?;
        // A buffer that was not filled has emptied the socket, or found its end.
        if buffer.remaining() > 0 && buffer.filled().len() > before {
            self.rest()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PacedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let State::Resting(socket) = &mut self.state {
            match socket.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
        // The reader finds it awake and goes on at once, which is early and no harm.
        self.wake()?.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wake()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
