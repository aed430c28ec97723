//! Faults between one client and the cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// The faults that are active.
#[derive(Clone, Debug, Default)]
pub struct ClientFaults {
    /// No request reaches the cluster, and the client gets an error at once.
    pub away: bool,
    /// The API server does not know this client's credentials.
    pub unauthenticated: bool,
    /// Requests are accepted and never answered; watches deliver nothing.
    pub hangs: bool,
    /// Watches deliver nothing and report no error.
    pub silent_watches: bool,
    /// A watch expires as soon as its list has ended.
    pub expires: bool,
    /// Every n-th write is answered with a conflict although there is none; zero for never.
    pub conflict_every: u32,
    /// For every n-th write the response is lost although the write took place; zero for never.
    pub lose_answer_every: u32,
    /// For every n-th write the response is unreadable although the write took place; zero for
    /// never.
    pub unreadable_every: u32,
    /// Writes to objects of these names are rejected, as by an admission webhook.
    pub refused: Vec<String>,
    /// The client's own rate limit delays every request by this long, which is too long to wait.
    pub turn_in: Duration,
    /// How long a request takes.
    pub latency: Duration,
    /// A write takes place this much later, even if the caller no longer waits for it: a process
    /// that was stopped between sending the request and acting on the answer.
    pub late: Duration,
}

/// Changes the faults of one client.
#[derive(Clone, Debug)]
pub struct ClientFaultSwitch {
    faults: Arc<Mutex<ClientFaults>>,
    turned: watch::Sender<u64>,
}

impl Default for ClientFaultSwitch {
    fn default() -> Self {
        Self { faults: Arc::default(), turned: watch::Sender::new(0) }
    }
}

impl ClientFaultSwitch {
    /// Changes what is broken.
    pub fn turn(&self, change: impl FnOnce(&mut ClientFaults)) {
        change(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        self.turned.send_modify(|count| *count += 1);
    }

    /// Removes all faults.
    pub fn reset(&self) {
        self.turn(|faults| *faults = ClientFaults::default());
    }

    /// The faults that are active now.
    pub fn now(&self) -> ClientFaults {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.turned.subscribe()
    }
}
