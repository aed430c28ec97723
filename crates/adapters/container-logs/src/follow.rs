//! Reads a log as it grows, through rotations, until its container has ended.
//!
//! Rule: woken by the kernel, never by a timer. After a rotation the old file is read to its end
//! before the new one begins: a runtime closes the old one only after it has opened the new one.

use crate::LogError;
use crate::files::open_regular;
use crate::read::{Bound, Entry, LineBuffer, MOST_LINE_BYTES, Selection, read_until};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe;

/// Hands on what there is of the selection and then all that comes, until `take` breaks off or
/// `ended` says that nothing more will be written; what was written before that is handed on still.
pub async fn follow(
    path: &Path,
    selection: &Selection,
    take: &mut (dyn FnMut(&Entry) -> ControlFlow<()> + Send),
    ended: impl Future<Output = ()> + Send,
) -> Result<(), LogError> {
    let failed = |cause| LogError { path: path.display().to_string(), cause };
    // Watched before it is read, so that nothing falls in between.
    let watch = FolderWatch::start(path).map_err(failed)?;
    let mut current = Current::open(path).map_err(failed)?;
    let mut stop = false;
    read_until(path, selection, Some(&current.begins), &mut |entry| {
        let flow = take(entry);
        stop = flow.is_break();
        flow
    })?;
    let later = Selection { tail: None, ..selection.clone() };
    let mut ended = std::pin::pin!(ended);
    let mut is_over = false;
    while !stop {
        stop = current.read_on(&later, take).map_err(failed)?.is_break();
        if stop || current.move_on().map_err(failed)? {
            continue;
        }
        if is_over {
            return Ok(());
        }
        tokio::select! {
            () = &mut ended => is_over = true,
            seen = watch.wait() => seen.map_err(failed)?,
        }
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
        take: &mut (dyn FnMut(&Entry) -> ControlFlow<()> + Send),
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
                    && take(&entry).is_break()
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
    events: pipe::Receiver,
}

impl FolderWatch {
    fn start(path: &Path) -> std::io::Result<Self> {
        let Some(folder) = path.parent() else {
            return Err(std::io::Error::other("not the path of a file"));
        };
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVE;
        inotify::add_watch(&descriptor, folder, what)?;
        // Not a pipe, but read like one: see the lock file's watch in host-process.
        Ok(Self { events: pipe::Receiver::from_owned_fd_unchecked(descriptor)? })
    }

    async fn wait(&self) -> std::io::Result<()> {
        // Which events they are does not matter: the file is looked at in any case.
        let mut buffer = [0_u8; 4096];
        loop {
            self.events.readable().await?;
            match self.events.try_read(&mut buffer) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
