//! How far an import or a pull is, told as values.
//!
//! Steps of different layers come from different threads and interleave; each carries what it
//! belongs to and totals, so that a listener needs no memory of earlier steps.

use crate::digest::Digest;

/// One thing that has just become true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Content is arriving: `done` of `total` bytes (unknown for content made or found by reading).
    Received { digest: Option<Digest>, done: u64, total: Option<u64> },
    /// The content was in the store already.
    Present { digest: Digest, bytes: u64 },
    /// A layer is being unpacked: bytes of its tar so far.
    Unpacking { diff_id: Digest, done: u64 },
    /// `done` of `of` layers have their snapshot.
    Layers { done: usize, of: usize },
}

/// Listens. Called from several threads; must not block for long.
pub trait Progress: Sync {
    fn step(&self, step: Step);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _step: Step) {}
}

/// Steps are told about this often, not for every read.
pub(crate) const EVERY_BYTES: u64 = 1 << 20;

/// Counts bytes and says when a listener should hear of them.
#[derive(Default)]
pub(crate) struct Paced {
    told: u64,
}

impl Paced {
    pub(crate) fn due(&mut self, done: u64) -> bool {
        let due = done >= self.told + EVERY_BYTES;
        if due {
            self.told = done;
        }
        due
    }
}
