//! Reads a log as it grows, through rotations, until its container has ended.
//!
//! Rule: woken by the kernel, never by a timer. After a rotation the old file is read to its end
//! before the new one begins: a runtime closes the old one only after it has opened the new one.

use crate::LogError;
use crate::files::open_regular;
use crate::read::{Bound, Entry, LineBuffer, MOST_LINE_BYTES, Selection, read_until};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe;

/// What [`follow`] asks of its caller.
pub trait Follow {
    /// Takes an entry; a break ends the following.
    fn take(&mut self, entry: &Entry) -> ControlFlow<()>;
    /// Asked when the log's writer has closed it: whether nothing more will come.
    fn has_ended(&mut self) -> impl Future<Output = bool>;
}

/// Hands on what there is of the selection and then all that comes.
pub async fn follow(
    path: &Path,
    selection: &Selection,
    caller: &mut impl Follow,
) -> Result<(), LogError> {
    let failed = |cause| LogError { path: path.display().to_string(), cause };
    // Watched before it is read, so that nothing falls in between.
    let mut watch = FolderWatch::start(path).map_err(failed)?;
    let mut current = Current::open(path).map_err(failed)?;
    let mut stop = false;
    read_until(path, selection, Some(&current.begins), &mut |entry| {
        let flow = caller.take(entry);
        stop = flow.is_break();
        flow
    })?;
    let later = Selection { tail: None, ..selection.clone() };
    let mut asked = false;
    while !stop {
        stop = current.read_on(&later, caller).map_err(failed)?.is_break();
        if stop {
            break;
        }
        if current.move_on().map_err(failed)? {
            continue;
        }
        let is_closed = watch.take_closed();
        if (is_closed || !std::mem::replace(&mut asked, true)) && caller.has_ended().await {
            // What was written between the last reading and the end.
            return current.read_on(&later, caller).map(|_| ()).map_err(failed);
        }
        watch.wait().await.map_err(failed)?;
    }
    Ok(())
}

/// The file that is being read.
struct Current {
    path: PathBuf,
    file: File,
    lines: LineBuffer,
    /// Where the reading on begins.
    begins: Bound,
}

impl Current {
    /// Opens at the end of what is whole now: that is read at once, the rest as it comes.
    fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = open_regular(path)?;
        let known = file.metadata()?;
        let at = end_of_last_line(&mut file, known.len())?;
        file.seek(SeekFrom::Start(at))?;
        let begins = Bound { device: known.dev(), inode: known.ino(), length: at };
        Ok(Self { path: path.to_path_buf(), file, lines: LineBuffer::default(), begins })
    }

    fn read_on(
        &mut self,
        selection: &Selection,
        caller: &mut impl Follow,
    ) -> std::io::Result<ControlFlow<()>> {
        let mut chunk = [0; 8192];
        loop {
            let length = self.file.read(&mut chunk)?;
            if length == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            self.lines.push(chunk.get(..length).unwrap_or_default());
            while let Some(line) = self.lines.next_line() {
                if let Some(entry) = selection.entry(&line)
                    && caller.take(&entry).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    /// Turns to the new file of that name once it is in use. True when it did.
    fn move_on(&mut self) -> std::io::Result<bool> {
        let next = match open_regular(&self.path) {
            Ok(next) => next,
            Err(gone) if gone.kind() == ErrorKind::NotFound => return Ok(false),
            Err(other) => return Err(other),
        };
        let (old, new) = (self.file.metadata()?, next.metadata()?);
        let is_other = (old.dev(), old.ino()) != (new.dev(), new.ino());
        // The old one may still grow until the first line stands in the new one.
        let old_is_read = self.file.stream_position()? >= old.len();
        if !(is_other && new.len() > 0 && old_is_read) {
            return Ok(false);
        }
        self.file = next;
        self.lines = LineBuffer::default();
        Ok(true)
    }
}

/// Where the last whole line ends. A line that is longer than any is taken as ended.
fn end_of_last_line(file: &mut File, length: u64) -> std::io::Result<u64> {
    let from = length.saturating_sub(MOST_LINE_BYTES as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    Read::by_ref(file).take(length - from).read_to_end(&mut end)?;
    let last = end.iter().rposition(|byte| *byte == b'\n');
    Ok(match last {
        Some(at) => from + at as u64 + 1,
        None => from,
    })
}

/// Whatever happens in the log's folder.
struct FolderWatch {
    name: Vec<u8>,
    events: pipe::Receiver,
    has_closed: bool,
}

impl FolderWatch {
    fn start(path: &Path) -> std::io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(std::io::Error::other("not the path of a file"));
        };
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let what = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF;
        inotify::add_watch(&descriptor, folder, what)?;
        let name = std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec();
        // Not a pipe, but read like one: see the lock file's watch in host-process.
        let events = pipe::Receiver::from_owned_fd_unchecked(descriptor)?;
        Ok(Self { name, events, has_closed: false })
    }

    async fn wait(&mut self) -> std::io::Result<()> {
        let mut buffer = [0_u8; 4096];
        loop {
            self.events.readable().await?;
            match self.events.try_read(&mut buffer) {
                Ok(length) => {
                    let events = buffer.get(..length).unwrap_or_default();
                    self.has_closed |= says_closed(events, &self.name);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }
}

/// Whether among the kernel's events is one that says that the log was closed, or that its folder
/// went. `struct inotify_event`: watch, mask, cookie, length of the name (32 bits each), name.
fn says_closed(mut events: &[u8], name: &[u8]) -> bool {
    while let Some((head, rest)) = events.split_first_chunk::<16>() {
        let number = |at: usize| {
            let bytes = head.get(at..at + 4).and_then(|four| four.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let mask = ReadFlags::from_bits_retain(number(4));
        let length = usize::try_from(number(12)).unwrap_or(usize::MAX).min(rest.len());
        let (padded, later) = rest.split_at(length);
        let ours = padded.split(|byte| *byte == 0).next() == Some(name);
        if (ours && mask.contains(ReadFlags::CLOSE_WRITE))
            || mask.intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED)
        {
            return true;
        }
        events = later;
    }
    false
}

#[cfg(test)]
mod tests;
