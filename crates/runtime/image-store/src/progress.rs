//! Progress of an import or a pull.
//!
//! Steps of different layers come from different threads and interleave; each names its content and
//! carries totals, so that a listener needs no state.

use crate::digest::Digest;

/// One progress update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressStep {
    /// Content is arriving: `done` of `total` bytes (none for content of unknown size).
    Received { digest: Option<Digest>, done: u64, total: Option<u64> },
    /// The content is in the store already.
    Present { digest: Digest, bytes: u64 },
    /// A layer is being unpacked: bytes of its tar so far.
    Unpacking { diff_id: Digest, done: u64 },
    /// `done` of `of` layers have their snapshot.
    Layers { done: usize, of: usize },
}

/// Receives updates. Called from several threads; must not block for long.
pub trait ProgressListener: Sync {
    fn step(&self, step: ProgressStep);
}

/// Ignores all updates.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl ProgressListener for NoProgress {
    fn step(&self, _step: ProgressStep) {}
}

/// Bytes between two updates.
pub(crate) const EVERY_BYTES: u64 = 1 << 20;

/// Counts bytes and decides when the next update is due.
#[derive(Default)]
pub(crate) struct StepThrottle {
    last_reported: u64,
}

impl StepThrottle {
    pub(crate) fn is_due(&mut self, done: u64) -> bool {
        let is_due = done >= self.last_reported + EVERY_BYTES;
        if is_due {
            self.last_reported = done;
        }
        is_due
    }
}
