//! The log's streams: standard error, or standard output for what is no error.
//!
//! Rule: logging never waits for a reader. Each stream has its own queue, so that a stuck standard
//! output costs no error on standard error. A stream's error is ignored: a closed pipe or a full
//! disk must not end the agent (SIGPIPE is ignored in Rust programs, so a closed pipe is only an
//! error here).

use super::line_queue::{DropNotice, LineQueue};
use super::record::LogSeverity;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Takes finished lines.
pub(crate) trait LineSink: Send + Sync {
    fn write(&self, severity: LogSeverity, line: String);
}

/// The two streams of this process.
pub(crate) struct ProcessStreams {
    errors: OneStream,
    /// Set if information goes to standard output.
    information: Option<OneStream>,
}

enum OneStream {
    Queued(LineQueue),
    /// No thread or descriptor was available: a log that may block is better than none.
    Direct(fn(&[u8])),
}

impl ProcessStreams {
    /// With `split`, information goes to standard output and errors to standard error; otherwise
    /// all goes to the latter.
    pub(crate) fn open(split: bool, notice: &DropNotice) -> ProcessStreams {
        let errors = OneStream::open("log-errors", io::stderr().as_fd(), notice, |line| {
            let _ = io::stderr().lock().write_all(line);
        });
        let information = split.then(|| {
            OneStream::open("log-output", io::stdout().as_fd(), notice, |line| {
                let mut output = io::stdout().lock();
                let _ = output.write_all(line).and_then(|()| output.flush());
            })
        });
        ProcessStreams { errors, information }
    }

    /// How long the slower of the two has not taken a line that waits for it.
    pub(crate) fn standstill(&self) -> Duration {
        let streams = std::iter::once(&self.errors).chain(&self.information);
        let standstill = streams.map(|stream| match stream {
            OneStream::Queued(queue) => queue.standstill(),
            OneStream::Direct(_) => Duration::ZERO,
        });
        standstill.max().unwrap_or_default()
    }

    /// Waits until everything is written, at most this long.
    pub(crate) fn flush(&self, longest: Duration) {
        let end = Instant::now() + longest;
        for stream in std::iter::once(&self.errors).chain(&self.information) {
            if let OneStream::Queued(queue) = stream {
                queue.flush(end.saturating_duration_since(Instant::now()));
            }
        }
    }
}

impl OneStream {
    fn open(
        name: &str,
        stream: BorrowedFd<'_>,
        notice: &DropNotice,
        direct: fn(&[u8]),
    ) -> OneStream {
        // Its own descriptor: no lock of the standard library is held while the write blocks.
        let queue = stream.try_clone_to_owned().and_then(|descriptor| {
            LineQueue::start(name, PatientFile(File::from(descriptor)), notice.clone())
        });
        queue.map_or_else(|_| OneStream::Direct(direct), OneStream::Queued)
    }

    fn write(&self, line: String) {
        match self {
            OneStream::Queued(queue) => queue.push(line),
            OneStream::Direct(write) => write(line.as_bytes()),
        }
    }
}

impl LineSink for &'static ProcessStreams {
    fn write(&self, severity: LogSeverity, line: String) {
        let apart = self.information.as_ref().filter(|_| severity < LogSeverity::Error);
        apart.unwrap_or(&self.errors).write(line);
    }
}

/// Waits on EAGAIN if other processes made the file non-blocking: its flags are shared with all of
/// them, so they must not be changed here.
struct PatientFile(File);

impl Write for PatientFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(full) if full.kind() == ErrorKind::WouldBlock => {
                    let mut watched = [PollFd::new(&self.0, PollFlags::OUT)];
                    match poll(&mut watched, None) {
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
