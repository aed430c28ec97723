//! Connections of the streaming server that have not redeemed a token.
//!
//! Rule: any local process may open one, so their number and their time are limited, and a new one
//! beyond the limit closes the oldest: in any flood, a client that sends its request at once is
//! answered. They use no permit of a stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How often a flood is logged.
const LOG_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct PendingConnections {
    limit: usize,
    state: Mutex<PendingState>,
}

#[derive(Debug, Default)]
struct PendingState {
    /// By age.
    open: BTreeMap<u64, oneshot::Sender<Evicted>>,
    next: u64,
    logged: Option<Instant>,
}

/// The connection was closed in favour of a newer one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evicted;

/// A pending connection; dropping it removes it from the set.
#[derive(Debug)]
pub(super) struct PendingConnection {
    all: Arc<PendingConnections>,
    number: u64,
}

impl PendingConnections {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. The receiver gets a value when the connection must be closed, and an
    /// error once it has left.
    pub(super) fn add(self: &Arc<Self>) -> (PendingConnection, oneshot::Receiver<Evicted>) {
        let (sender, evicted) = oneshot::channel();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.open.insert(number, sender);
        if state.open.len() > self.limit
            && let Some((_, oldest)) = state.open.pop_first()
        {
            let _ = oldest.send(Evicted);
            if state.logged.is_none_or(|at| at.elapsed() > LOG_AGAIN) {
                state.logged = Some(Instant::now());
                tracing::warn!(
                    limit = self.limit,
                    "too many connections for streams have sent no token; the oldest are closed"
                );
            }
        }
        drop(state);
        (PendingConnection { all: Arc::clone(self), number }, evicted)
    }
}

impl PendingConnection {
    /// Call before redeeming a token. False: it is being closed in favour of a newer one.
    pub(super) fn take_out(&self) -> bool {
        self.all.state().open.remove(&self.number).is_some()
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.take_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let all = PendingConnections::new(2);
        let (first, mut first_evicted) = all.add();
        let (second, mut second_evicted) = all.add();
        assert!(first_evicted.try_recv().is_err());
        let (third, mut third_evicted) = all.add();
        assert_eq!(first_evicted.try_recv(), Ok(Evicted));
        assert!(!first.take_out(), "it is being closed");
        // A connection with a token is not closed, and has made room.
        assert!(second.take_out());
        let (_fourth, _evicted) = all.add();
        assert!(second_evicted.try_recv().is_err() && third_evicted.try_recv().is_err());
        drop(third);
        let (_fifth, _evicted) = all.add();
        assert_eq!(all.state().open.len(), 2);
    }
}
