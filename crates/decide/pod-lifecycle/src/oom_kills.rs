//! Which OOM kills of a container are kept until they are reported.
//!
//! Rules: between two observations of a pod any number of its processes may be killed, and no kill
//! replaces another that has not been reported yet. The last few are kept in full; of those before
//! them only the number. Records of one container are in the kernel's order.

use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// How many kills are kept for one container: a server whose workers are killed one after the other
/// produces them without end.
pub(crate) const MAX_RECORDS: usize = 8;

/// An identified process that was killed, or the number of kills.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomKillRecord {
    /// The number of OOM kills in the container so far, where the processes are not identified;
    /// zero where one is.
    pub unnamed: u64,
    /// For an identified process: increases with each kill, starting at one; the same when the kill
    /// is read again.
    pub order: u64,
    /// For an identified process: when it was killed, in nanoseconds since the epoch; zero where
    /// that is not known.
    pub at: i64,
    pub process: String,
    pub pid: i32,
    /// The memory that the process used, and the limit where it is known.
    pub bytes: u64,
    pub limit: Option<u64>,
}

/// OOM kills in one container, that is, in one attempt of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomKillRecords {
    /// Oldest first.
    notes: VecDeque<OomKillRecord>,
    /// How many earlier ones were dropped.
    dropped: u64,
    /// The order of the last one that was dropped.
    last_dropped: u64,
}

impl OomKillRecords {
    /// Adds a kill; true if it is kept. One that was only killed along with a victim is skipped
    /// where the victim's kill is kept, and so is one that is read again.
    pub fn add(&mut self, note: OomKillRecord, with_another: bool) -> bool {
        if with_another && !self.notes.is_empty() {
            return false;
        }
        if note.unnamed > 0 {
            // The new count includes the earlier counts.
            self.notes.retain(|known| known.unnamed == 0);
        } else if self.notes.iter().any(|known| known.unnamed == 0 && known.order >= note.order) {
            return false;
        }
        self.notes.push_back(note);
        if self.notes.len() > MAX_RECORDS
            && let Some(oldest) = self.notes.pop_front()
        {
            self.dropped = self.dropped.saturating_add(1);
            self.last_dropped = self.last_dropped.max(oldest.order);
        }
        true
    }

    /// The same with a limit.
    pub fn limited_to(mut self, limit: Option<u64>) -> Self {
        for note in &mut self.notes {
            note.limit = limit;
        }
        self
    }

    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &OomKillRecord> + ExactSizeIterator {
        self.notes.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// How many kills after this one were dropped, at most; zero where all are kept.
    pub(crate) fn dropped_after(&self, order: u64) -> u64 {
        self.dropped.min(self.last_dropped.saturating_sub(order))
    }
}
