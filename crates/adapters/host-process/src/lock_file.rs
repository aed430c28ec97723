//! The file of `--lock-file`, shared with other programs that use the same path.
//!
//! Rule: as upstream (pkg/util/flock, cmd/kubelet/app/server_linux.go). Taking the lock waits
//! without limit for the holder; the file is created with mode 0600, stays empty and stays there.
//! With `--exit-on-lock-contention` the holder exits as soon as another process opens or removes
//! it.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe;

/// Held as long as this value lives.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
#[error("unable to {action} {path:?}: {cause}")]
pub struct LockFileError {
    pub action: &'static str,
    pub path: PathBuf,
    pub cause: std::io::Error,
}

impl LockFile {
    /// Takes the lock, waiting for as long as another process holds it. Blocks the thread.
    pub fn acquire(path: &Path) -> Result<LockFile, LockFileError> {
        let failed = |cause| LockFileError {
            action: "acquire file lock on",
            path: path.to_path_buf(),
            cause,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(LockFile { _file: file }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}

/// Reports when another process wants the file.
#[derive(Debug)]
pub struct ContentionWatch {
    path: PathBuf,
    /// Not a pipe, but read like one: tokio's own way to wait for any readable descriptor needs
    /// unsafe code, and this crate has none.
    events: pipe::Receiver,
}

impl ContentionWatch {
    /// Starts watching; must be called once the lock is held, since the own open counts too. Needs
    /// a running tokio reactor.
    pub fn start(path: &Path) -> Result<ContentionWatch, LockFileError> {
        let failed = |cause: std::io::Error| LockFileError {
            action: "watch lock file",
            path: path.to_path_buf(),
            cause,
        };
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(|errno| failed(errno.into()))?;
        inotify::add_watch(&descriptor, path, WatchFlags::OPEN | WatchFlags::DELETE_SELF)
            .map_err(|errno| failed(errno.into()))?;
        let events = pipe::Receiver::from_owned_fd_unchecked(descriptor).map_err(failed)?;
        Ok(ContentionWatch { path: path.to_path_buf(), events })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file is opened or removed; returns which. An error of the watch itself
    /// counts as contention too (as upstream): better to exit than to keep the lock unwatched.
    pub async fn contended(&self) -> String {
        let mut buffer = [0_u8; 512];
        loop {
            if let Err(error) = self.events.readable().await {
                return format!("the watch failed: {error}");
            }
            match self.events.try_read(&mut buffer) {
                Ok(length) => return describe(event_kind(&buffer[..length])).to_owned(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return format!("the watch failed: {error}"),
            }
        }
    }
}

/// The kind of the first event: `struct inotify_event` begins with the watch descriptor and then
/// the mask, 32 bits each.
fn event_kind(bytes: &[u8]) -> ReadFlags {
    match bytes {
        [_, _, _, _, a, b, c, d, ..] => {
            ReadFlags::from_bits_retain(u32::from_ne_bytes([*a, *b, *c, *d]))
        }
        _ => ReadFlags::empty(),
    }
}

fn describe(event: ReadFlags) -> &'static str {
    if event.contains(ReadFlags::OPEN) {
        "opened"
    } else if event.contains(ReadFlags::DELETE_SELF) {
        "removed"
    } else {
        "changed"
    }
}

#[cfg(test)]
mod tests;
