//! Which kills for want of memory are kept of a container until they are told.
//!
//! Rules: between two looks at a pod any number of its processes may be killed, and none takes the
//! place of another that nobody has told of. The last few are kept whole; of those before them it is
//! known that there were some. Notes of one container come in the kernel's order.

use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Notes that are kept of one container: a server whose workers are killed one after the other has
/// no end of them.
pub(crate) const MOST_NOTES: usize = 8;

/// A process that is named, or else how many were killed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryKillNote {
    /// How many of the container's processes were killed up to now, where nobody tells which; zero
    /// where one is named.
    pub unnamed: u64,
    /// Of one that is named: rises from kill to kill, from one, and stays the same when it is heard
    /// of again.
    pub order: u64,
    /// Of one that is named: when it was killed, in nanoseconds since the epoch; zero where that is
    /// not known.
    pub at: i64,
    pub process: String,
    pub pid: i32,
    /// What the process used, and the limit where it is known.
    pub bytes: u64,
    pub limit: Option<u64>,
}

/// Kills in one container, that is, in one life of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryKillNotes {
    /// Oldest first.
    notes: VecDeque<MemoryKillNote>,
    /// How many before them are not kept.
    dropped: u64,
    /// The order of the last one that is not kept.
    last_dropped: u64,
}

impl MemoryKillNotes {
    /// Takes a kill; whether it is noted. One that only had to go with another is not where that other
    /// one is, and one that is heard of again is not either.
    pub fn add(&mut self, note: MemoryKillNote, with_another: bool) -> bool {
        if with_another && !self.notes.is_empty() {
            return false;
        }
        if note.unnamed > 0 {
            // The count holds those that were counted before.
            self.notes.retain(|known| known.unnamed == 0);
        } else if self.notes.iter().any(|known| known.unnamed == 0 && known.order >= note.order) {
            return false;
        }
        self.notes.push_back(note);
        if self.notes.len() > MOST_NOTES
            && let Some(oldest) = self.notes.pop_front()
        {
            self.dropped = self.dropped.saturating_add(1);
            self.last_dropped = self.last_dropped.max(oldest.order);
        }
        true
    }

    /// The same under a limit.
    pub fn limited_to(mut self, limit: Option<u64>) -> Self {
        for note in &mut self.notes {
            note.limit = limit;
        }
        self
    }

    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &MemoryKillNote> + ExactSizeIterator {
        self.notes.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// At most so many kills after this one are not kept any more; zero where all are.
    pub(crate) fn dropped_after(&self, order: u64) -> u64 {
        self.dropped.min(self.last_dropped.saturating_sub(order))
    }
}
