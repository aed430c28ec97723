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
pub(crate) struct BatchingSocket {
    state: SocketState,
    pauses_from: Instant,
    /// `None` for a socket that never rests.
    read_pause: Option<ReadPause>,
}

#[derive(Debug)]
enum SocketState {
    Reading(TcpStream),
    Paused(std::net::TcpStream),
    /// Only after the kernel refused to register it.
    Broken,
}

/// A timer that ends a rest.
#[derive(Debug)]
struct ReadPause {
    timer: AsyncFd<OwnedFd>,
    batch_interval: Duration,
}

impl ReadPause {
    #[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
    fn new(batch_interval: Duration) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer: AsyncFd::with_interest(timer, Interest::READABLE)?, batch_interval })
    }

    fn begin(&self) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec::try_from(self.batch_interval).map_err(io::Error::other)?,
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

impl BatchingSocket {
    /// # Errors
    /// If the kernel cannot create a timer.
    pub(crate) fn new(socket: TcpStream, batch_interval: Duration) -> io::Result<Self> {
        let read_pause =
            if batch_interval.is_zero() { None } else { Some(ReadPause::new(batch_interval)?) };
        Ok(Self {
            state: SocketState::Reading(socket),
            pauses_from: Instant::now() + SET_UP,
            read_pause,
        })
    }

    fn read_pause(&mut self) -> io::Result<()> {
        let Some(read_pause) =
            self.read_pause.as_ref().filter(|_| Instant::now() >= self.pauses_from)
        else {
            return Ok(());
        };
        if let SocketState::Reading(socket) =
            std::mem::replace(&mut self.state, SocketState::Broken)
        {
            read_pause.begin()?;
            self.state = SocketState::Paused(socket.into_std()?);
        }
        Ok(())
    }

    /// Registers the socket again if it rests.
    fn wake(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if matches!(self.state, SocketState::Paused(_))
            && let SocketState::Paused(socket) =
                std::mem::replace(&mut self.state, SocketState::Broken)
        {
            self.state = SocketState::Reading(TcpStream::from_std(socket)?);
        }
        match &mut self.state {
            SocketState::Reading(socket) => Ok(Pin::new(socket)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for BatchingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let (SocketState::Paused(_), Some(read_pause)) = (&self.state, &self.read_pause) {
            ready!(read_pause.poll_end(context))?;
        }
        let before = buffer.filled().len();
        ready!(self.wake()?.poll_read(context, buffer))?;
        // A buffer that was not filled means the socket is empty, or at its end.
        if buffer.remaining() > 0 && buffer.filled().len() > before {
            self.read_pause()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BatchingSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let SocketState::Paused(socket) = &mut self.state {
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
