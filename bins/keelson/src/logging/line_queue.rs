//! Lines on their way to one stream: a bounded queue and the one thread that writes.
//!
//! Rule: [`LineQueue::push`] never waits for the reader. Lines keep their order, one write each.
//! When the queue is full, new lines are dropped and counted, and a line in their place says how
//! many. Does not know what a line looks like.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Thousands of lines: a reader may pause for a while, and memory stays small when it never returns.
const MAX_BYTES: usize = 1024 * 1024;

/// Makes the line that says how many were dropped.
pub(crate) type DropNotice = Arc<dyn Fn(u64) -> String + Send + Sync>;

pub(crate) struct LineQueue {
    shared: Arc<QueueShared>,
}

struct QueueShared {
    state: Mutex<QueueState>,
    notice: DropNotice,
    /// There is something to write, or the queue was closed.
    more: Condvar,
    /// Everything is written.
    settled: Condvar,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines dropped since the last one that was taken.
    dropped: u64,
    /// The thread is writing a line.
    writing: bool,
    /// While there is something to write: since when nothing was written.
    stands_since: Option<Instant>,
    closed: bool,
}

impl LineQueue {
    /// Starts the thread that writes to `target`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        name: &str,
        target: impl Write + Send + 'static,
        notice: DropNotice,
    ) -> io::Result<LineQueue> {
        let shared = Arc::new(QueueShared {
            state: Mutex::default(),
            notice,
            more: Condvar::new(),
            settled: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || writer.write_all_lines(target))?;
        Ok(LineQueue { shared })
    }

    /// Takes a line, or counts it as dropped.
    pub(crate) fn push(&self, line: String) {
        let mut state = self.shared.lock();
        if !state.has_room(&line) {
            state.dropped += 1;
            return;
        }
        if let Some(notice) = state.notice_of_drops(&self.shared.notice) {
            state.append(notice);
        }
        state.append(line);
        state.stands_since.get_or_insert_with(Instant::now);
        drop(state);
        self.shared.more.notify_one();
    }

    /// How long lines have waited without any of them being written; nothing while none waits.
    pub(crate) fn standstill(&self) -> Duration {
        self.shared.lock().stands_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Waits until everything is written, at most this long.
    pub(crate) fn flush(&self, longest: Duration) {
        let state = self.shared.lock();
        // The caller does not need to know whether the timeout was reached.
        drop(self.shared.settled.wait_timeout_while(state, longest, |state| state.is_busy()));
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.more.notify_one();
    }
}

impl QueueShared {
    /// A panic elsewhere must not silence the log that reports it.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all_lines(&self, mut target: impl Write) {
        while let Some(line) = self.next() {
            // A closed pipe or a full disk costs the line.
            let _ = target.write_all(line.as_bytes()).and_then(|()| target.flush());
        }
    }

    /// Waits for a line; none when the queue was closed and is empty.
    fn next(&self) -> Option<String> {
        let mut state = self.lock();
        loop {
            let line = state.take().or_else(|| state.notice_of_drops(&self.notice));
            state.writing = line.is_some();
            // The previous line has been written.
            state.stands_since = line.is_some().then(Instant::now);
            if line.is_some() {
                return line;
            }
            self.settled.notify_all();
            if state.closed {
                return None;
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl QueueState {
    /// A line that is larger than the whole queue is accepted when nothing else waits.
    fn has_room(&self, line: &str) -> bool {
        self.lines.is_empty() || self.bytes + line.len() <= MAX_BYTES
    }

    fn append(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn take(&mut self) -> Option<String> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }

    fn notice_of_drops(&mut self, notice: &DropNotice) -> Option<String> {
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0).then(|| notice(dropped))
    }

    fn is_busy(&self) -> bool {
        self.writing || !self.lines.is_empty() || self.dropped > 0
    }
}
