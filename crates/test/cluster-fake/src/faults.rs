//! What goes wrong between one client and the cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// What is broken at the moment.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Nothing reaches the cluster, and that is noticed at once.
    pub away: bool,
    /// Requests are taken and never answered; watches tell nothing.
    pub hangs: bool,
    /// Watches tell nothing, and nobody notices.
    pub deaf: bool,
    /// A watch expires as soon as its list has ended.
    pub expires: bool,
    /// Every so many writes there is a conflict though there is none; zero for never.
    pub conflict_every: u32,
    /// Every so many writes the answer is lost, though the write is not; zero for never.
    pub lose_answer_every: u32,
    /// Every so many writes the answer is nonsense, though the write is through; zero for never.
    pub unreadable_every: u32,
    /// Writes to objects of these names are refused, as somebody's admission webhook may.
    pub refused: Vec<String>,
    /// The client's own rate lets nothing leave before this time, which is too long to wait.
    pub turn_in: Duration,
    /// How long a request takes.
    pub latency: Duration,
    /// A write gets through so much later, whether or not anybody still waits for it: a process
    /// that was stopped between asking and acting.
    pub late: Duration,
}

/// Changes the faults of one client.
#[derive(Clone, Debug)]
pub struct FaultSwitch {
    faults: Arc<Mutex<Faults>>,
    turned: watch::Sender<u64>,
}

impl Default for FaultSwitch {
    fn default() -> Self {
        Self { faults: Arc::default(), turned: watch::Sender::new(0) }
    }
}

impl FaultSwitch {
    /// Changes what is broken.
    pub fn turn(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        self.turned.send_modify(|count| *count += 1);
    }

    /// Everything works again.
    pub fn mend(&self) {
        self.turn(|faults| *faults = Faults::default());
    }

    /// What is broken now.
    pub fn now(&self) -> Faults {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.turned.subscribe()
    }
}
