//! A socket that is read in batches: data that arrives within one interval is read together.
//!
//! A large cluster's heartbeats arrive a few at a time, all the time, and each would wake the
//! process for a handful of bytes. A delay of a fraction of a second does not matter for them, so
//! after each read the socket rests: it is not registered with the kernel's event queue, and data
//! waits in the kernel, whose flow control slows the sender if there is too much. A kernel timer
//! ends the rest: tokio's own would wake the process twice for each, once to move it from a coarse
//! wheel to a fine one.
//!
//! Rule: adds at most one interval of latency; data that arrives after a quiet time is read at
//! once. A connection is set up at full speed. Writing never waits for a rest.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// How long a new connection is read at full speed.
const SET_UP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct PacedSocket {
    state: State,
    rests_from: Instant,
    /// `None` for a socket that never rests.
    rest: Option<Rest>,
}

#[derive(Debug)]
enum State {
    Awake(TcpStream),
    Resting(std::net::TcpStream),
    /// Only after the kernel refused to register it.
    Broken,
}

/// A timer that ends a rest.
#[derive(Debug)]
struct Rest {
    timer: AsyncFd<OwnedFd>,
    stride: Duration,
}

impl Rest {
    #[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
    fn new(stride: Duration) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer: AsyncFd::with_interest(timer, Interest::READABLE)?, stride })
    }

    fn begin(&self) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec::try_from(self.stride).map_err(io::Error::other)?,
        };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn poll_end(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Arming it again clears it, so it is never read.
        ready!(self.timer.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}

impl PacedSocket {
    /// # Errors
    /// If the kernel cannot create a timer.
    pub(crate) fn new(socket: TcpStream, stride: Duration) -> io::Result<Self> {
        let rest = if stride.is_zero() { None } else { Some(Rest::new(stride)?) };
        Ok(Self { state: State::Awake(socket), rests_from: Instant::now() + SET_UP, rest })
    }

    fn rest(&mut self) -> io::Result<()> {
        let Some(rest) = self.rest.as_ref().filter(|_| Instant::now() >= self.rests_from) else {
            return Ok(());
        };
        if let State::Awake(socket) = std::mem::replace(&mut self.state, State::Broken) {
            rest.begin()?;
            self.state = State::Resting(socket.into_std()?);
        }
        Ok(())
    }

    /// Registers the socket again if it rests.
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
        if let (State::Resting(_), Some(rest)) = (&self.state, &self.rest) {
            ready!(rest.poll_end(context))?;
        }
        let before = buffer.filled().len();
        ready!(self.wake()?.poll_read(context, buffer))?;
        // A buffer that was not filled means the socket is empty, or at its end.
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
        // The reader finds it registered and goes on at once: early, but harmless.
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
