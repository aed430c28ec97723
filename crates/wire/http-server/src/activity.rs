//! What one connection is doing, and its deadline.
//!
//! Rule: the phase changes under one lock, so that a connection is never closed as idle once its
//! next request has begun.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::server::ServerLimits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// In its handshake.
    Opening,
    /// Between requests.
    Idle,
    /// A part of a request's head has arrived.
    Head,
    /// A request is being answered, or it is a stream.
    Busy,
    Closed,
}

impl ConnectionPhase {
    fn may_be_closed(self) -> bool {
        matches!(self, Self::Opening | Self::Idle | Self::Head)
    }
}

#[derive(Debug)]
struct ActivityState {
    phase: ConnectionPhase,
    since: Instant,
    deadline: Instant,
    /// No more requests after this one.
    closing: bool,
}

#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    state: Mutex<ActivityState>,
    /// Wakes the connection's own task.
    changed: Notify,
    /// Wakes the task that waits for a connection to close.
    idle: Arc<Notify>,
    head_timeout: Duration,
    idle_timeout: Duration,
}

/// What a connection's task must do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionSignal {
    /// Drop the connection.
    Close,
    /// Close it after the request that is being answered.
    End,
}

impl ConnectionActivity {
    pub(crate) fn new(limits: &ServerLimits, idle: Arc<Notify>) -> Self {
        let now = Instant::now();
        let state = ActivityState {
            phase: ConnectionPhase::Opening,
            since: now,
            deadline: now + limits.head_timeout,
            closing: false,
        };
        let (head_timeout, idle_timeout) = (limits.head_timeout, limits.idle_timeout);
        Self { state: Mutex::new(state), changed: Notify::new(), idle, head_timeout, idle_timeout }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, state: &mut ActivityState, phase: ConnectionPhase, max_duration: Duration) {
        state.phase = phase;
        state.since = Instant::now();
        state.deadline = state.since + max_duration;
        self.changed.notify_one();
    }

    /// The handshake is done; the first request must begin soon.
    pub(crate) fn opened(&self) {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Opening {
            self.enter(&mut state, ConnectionPhase::Idle, self.head_timeout);
        }
    }

    /// Bytes came in.
    fn bytes_read(&self) {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Idle {
            self.enter(&mut state, ConnectionPhase::Head, self.head_timeout);
        }
    }

    /// A request begins. `false` if the connection is closed already.
    pub(crate) fn begin_request(&self, max_duration: Duration) -> bool {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Closed {
            return false;
        }
        self.enter(&mut state, ConnectionPhase::Busy, max_duration);
        true
    }

    /// Sets the deadline of the current phase, from now on.
    pub(crate) fn extend_deadline(&self, max_duration: Duration) {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Busy {
            self.enter(&mut state, ConnectionPhase::Busy, max_duration);
        }
    }

    /// The response has been handed to the connection.
    pub(crate) fn finish_request(&self) {
        let mut state = self.state();
        if state.phase == ConnectionPhase::Busy {
            self.enter(&mut state, ConnectionPhase::Idle, self.idle_timeout);
            self.idle.notify_one();
        }
    }

    /// Since when it has been idle; `None` while it is busy.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        state.phase.may_be_closed().then_some(state.since)
    }

    /// Closes it unless it is busy. `false` if it is.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut state = self.state();
        if !state.phase.may_be_closed() {
            return false;
        }
        state.phase = ConnectionPhase::Closed;
        self.changed.notify_one();
        true
    }

    /// No more requests after the one that is being answered.
    pub(crate) fn end(&self) {
        if !self.close_if_idle() {
            self.state().closing = true;
            self.changed.notify_one();
        }
    }

    /// The next signal. `is_closing`: it is known that no more requests come.
    pub(crate) async fn signal(&self, is_closing: bool) -> ConnectionSignal {
        loop {
            let (closed, deadline, closing) = {
                let state = self.state();
                (state.phase == ConnectionPhase::Closed, state.deadline, state.closing)
            };
            if closed {
                return ConnectionSignal::Close;
            }
            if closing && !is_closing {
                return ConnectionSignal::End;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until(deadline) => {
                    let mut state = self.state();
                    // The deadline may have moved meanwhile.
                    if Instant::now() >= state.deadline {
                        state.phase = ConnectionPhase::Closed;
                    }
                }
            }
        }
    }

    /// Waits until the connection is to be dropped.
    pub(crate) async fn closed(&self) {
        while self.signal(true).await != ConnectionSignal::Close {}
    }
}

/// An accepted stream that reports when a request begins to arrive.
#[derive(Debug)]
pub struct TrackedStream<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
}

impl<S> TrackedStream<S> {
    pub(crate) fn new(stream: S, activity: Arc<ConnectionActivity>) -> Self {
        Self { stream, activity }
    }

    /// The stream itself.
    pub fn into_stream(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.activity.bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
