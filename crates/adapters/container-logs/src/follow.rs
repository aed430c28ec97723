//! Follows a log as it grows, through rotations, until its container has ended.
//!
//! Rule: woken by inotify, and by a timer only where the machine has no more watches. After a
//! rotation the old file is read to its end before the new one: a runtime closes the old one only
//! after it has opened the new one. A slow reader reads every file that came in between, compressed
//! or not, in order; only what was removed meanwhile is lost.

use crate::LogError;
use crate::files::{LogFile, open_regular, rotated_files};
use crate::read::{LineBuffer, LogEntry, LogSelection, MAX_LINE_BYTES, ReadBound, WrittenLog};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::unix::pipe;

/// Enough of a line to identify it by its timestamp.
const FIRST_BYTES: usize = 64;

/// Without inotify: how often the log is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Passes on the selected lines that exist and then all new ones, until `take` breaks off or
/// `ended` reports that nothing more will be written; what was written before that is still passed
/// on.
pub async fn follow(
    path: &Path,
    selection: &LogSelection,
    take: &mut (dyn FnMut(&LogEntry) -> ControlFlow<()> + Send),
    ended: impl Future<Output = ()> + Send,
) -> Result<(), LogError> {
    let mut log = FollowedLog::open(path, selection)?;
    let mut ended = std::pin::pin!(ended);
    let mut is_over = false;
    while log.read(take)?.is_continue() && !is_over {
        tokio::select! {
            () = &mut ended => is_over = true,
            waited = log.changed() => waited?,
        }
    }
    Ok(())
}

/// A log that is read while it is written.
pub(crate) struct FollowedLog {
    selection: LogSelection,
    watch: DirWatch,
    /// `None` once it is read.
    written: Option<WrittenLog>,
    current: FollowedFile,
}

impl FollowedLog {
    /// Needs a tokio reactor.
    pub(crate) fn open(path: &Path, selection: &LogSelection) -> Result<Self, LogError> {
        let failed = |cause| LogError { path: path.display().to_string(), cause };
        // The watch is set before the first read, so that nothing is missed in between.
        let watch = DirWatch::start(path).map_err(failed)?;
        let current = FollowedFile::open(path).map_err(failed)?;
        let written = Some(WrittenLog::start(path, selection, Some(&current.start))?);
        let selection = LogSelection { tail: None, ..selection.clone() };
        Ok(Self { selection, watch, written, current })
    }

    /// Passes on the entries that are written. After a break it may be called again for the rest.
    pub(crate) fn read(
        &mut self,
        take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LogError> {
        if let Some(written) = &mut self.written
            && written.read(&self.selection, take)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        self.written = None;
        let path = self.current.path.display().to_string();
        let failed = |cause| LogError { path: path.clone(), cause };
        loop {
            if self.current.read_available(&self.selection, take).map_err(failed)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if !self.current.advance().map_err(failed)? {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Waits until more may have been written. Cancel-safe.
    pub(crate) async fn changed(&self) -> Result<(), LogError> {
        let path = || self.current.path.display().to_string();
        self.watch.wait().await.map_err(|cause| LogError { path: path(), cause })
    }
}

/// The file that is being read.
struct FollowedFile {
    path: PathBuf,
    file: File,
    lines: LineBuffer,
    /// The rest of its content, if it is compressed; `file` is then at its end.
    packed: Option<Box<dyn Read + Send + Sync>>,
    /// Where reading continues.
    start: ReadBound,
    /// Opened by the log's own name; otherwise it was rotated already.
    is_live: bool,
    /// The newest timestamp of a rotated file when it was opened; its own if it was rotated
    /// already. Files rotated later have a later one.
    stamp: Option<String>,
}

impl FollowedFile {
    /// Opens the file and remembers where its last whole line ends: up to there is read at once,
    /// the rest as it comes.
    fn open(path: &Path) -> std::io::Result<Self> {
        let (mut file, stamp) = loop {
            let before = newest_stamp(path)?;
            let file = open_regular(path)?;
            if newest_stamp(path)? == before {
                break (file, before);
            }
        };
        let metadata = file.metadata()?;
        let at = end_of_last_line(&mut file, metadata.len())?;
        file.seek(SeekFrom::Start(at))?;
        let start = ReadBound { device: metadata.dev(), inode: metadata.ino(), length: at };
        let (path, lines) = (path.to_path_buf(), LineBuffer::default());
        Ok(Self { path, file, lines, packed: None, start, is_live: true, stamp })
    }

    /// Passes on what is written; a break can be resumed.
    fn read_available(
        &mut self,
        selection: &LogSelection,
        take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
    ) -> std::io::Result<ControlFlow<()>> {
        if let Some(content) = &mut self.packed {
            if read_through(content, &mut self.lines, selection, take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.packed = None;
        }
        read_through(&mut self.file, &mut self.lines, selection, take)
    }

    /// Switches to the next file once it is in use. `true` if it did, or should be called again.
    fn advance(&mut self) -> std::io::Result<bool> {
        if self.file.stream_position()? < self.file.metadata()?.len() {
            return Ok(false);
        }
        let mut rotated = rotated_files(&self.path)?;
        let newest = rotated.last().map(|(stamp, _)| stamp.clone());
        rotated.retain(|(stamp, _)| Some(stamp) > self.stamp.as_ref());
        let mut later = rotated.into_iter().peekable();
        if self.is_live
            && let Some((_, first)) = later.peek()
            && self.is_at(first)?
        {
            later.next();
        }
        if let Some((stamp, next)) = later.next() {
            return self.switch_to_rotated(stamp, &next);
        }
        let next = match open_regular(&self.path) {
            Ok(next) => next,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(false);
            }
            Err(other) => return Err(other),
        };
        if newest_stamp(&self.path)? != newest {
            return Ok(true);
        }
        // The old one may still grow until the new one has its first line, so it is checked last.
        let new = next.metadata()?;
        let old = self.file.metadata()?;
        let is_other = (old.dev(), old.ino()) != (new.dev(), new.ino());
        if !(is_other && new.len() > 0) {
            return Ok(false);
        }
        if self.file.stream_position()? < old.len() {
            return Ok(true);
        }
        (self.file, self.lines) = (next, LineBuffer::default());
        self.packed = None;
        (self.is_live, self.stamp) = (true, newest);
        Ok(true)
    }

    /// Switches to a rotated file.
    fn switch_to_rotated(&mut self, stamp: String, next: &LogFile) -> std::io::Result<bool> {
        let opened = open_regular(&next.path).and_then(|file| Ok((file, next.open()?)));
        let (mut file, content) = match opened {
            Ok(opened) => opened,
            // Just compressed or removed: the next listing shows which.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            Err(other) => return Err(other),
        };
        self.packed = None;
        if next.is_packed {
            file.seek(SeekFrom::End(0))?;
            self.packed = Some(content);
        }
        (self.file, self.lines) = (file, LineBuffer::default());
        (self.is_live, self.stamp) = (false, Some(stamp));
        Ok(true)
    }

    /// Whether that is the file being read, possibly renamed or compressed. Lines begin with the
    /// nanosecond at which they were written, so no two files begin alike.
    fn is_at(&self, other: &LogFile) -> std::io::Result<bool> {
        let mut own = [0; FIRST_BYTES];
        let length = self.file.read_at(&mut own, 0)?;
        let mut other_bytes = Vec::new();
        match other.open() {
            Ok(content) => content.take(length as u64).read_to_end(&mut other_bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(cause) => return Err(cause),
        };
        Ok(own.get(..length) == Some(other_bytes.as_slice()))
    }
}

fn newest_stamp(path: &Path) -> std::io::Result<Option<String>> {
    Ok(rotated_files(path)?.pop().map(|(stamp, _)| stamp))
}

/// Passes on all whole lines up to the end of the file; a break can be resumed.
fn read_through(
    content: &mut dyn Read,
    lines: &mut LineBuffer,
    selection: &LogSelection,
    take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
) -> std::io::Result<ControlFlow<()>> {
    let mut chunk = [0; 8192];
    loop {
        while let Some(line) = lines.next_line() {
            if let Some(entry) = selection.entry(&line)
                && take(&entry).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        let length = content.read(&mut chunk)?;
        if length == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        lines.push(chunk.get(..length).unwrap_or_default());
    }
}

/// Where the last whole line ends. A line beyond the size limit counts as ended.
fn end_of_last_line(file: &mut File, length: u64) -> std::io::Result<u64> {
    let from = length.saturating_sub(MAX_LINE_BYTES as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    Read::by_ref(file).take(length - from).read_to_end(&mut end)?;
    let last = end.iter().rposition(|byte| *byte == b'\n');
    Ok(match last {
        Some(at) => from + at as u64 + 1,
        None => from,
    })
}

/// Watches the log's directory.
struct DirWatch {
    /// `None` if the machine has no more watches: then the log is checked every second.
    events: Option<pipe::Receiver>,
}

impl DirWatch {
    fn start(path: &Path) -> std::io::Result<Self> {
        let Some(dir) = path.parent() else {
            return Err(std::io::Error::other("not the path of a file"));
        };
        match watch_dir(dir) {
            // An inotify descriptor, read like a pipe: see the lock file's watch in host-process.
            Ok(descriptor) => {
                Ok(Self { events: Some(pipe::Receiver::from_owned_fd_unchecked(descriptor)?) })
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOSPC | Errno::NOMEM) => {
                Ok(Self { events: None })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn wait(&self) -> std::io::Result<()> {
        let Some(events) = &self.events else {
            tokio::time::sleep(CHECK_PERIOD).await;
            return Ok(());
        };
        // Which events they are does not matter: the file is checked in any case.
        let mut buffer = [0_u8; 4096];
        loop {
            events.readable().await?;
            match events.try_read(&mut buffer) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn watch_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVE;
    inotify::add_watch(&descriptor, dir, what)?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests;
