//! The exclusive lock of a root directory: one agent per directory.
//!
//! Rule: the lock is the kernel's `flock` on `<root>/keelson/agent.lock`, which is released when
//! its process dies; the text in the file only names the holder for people. Nothing else is read
//! from it, so a stale file never keeps an agent from starting. The file is never removed.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first line of the file. Other versions ignore the lines below.
const FORMAT: &str = "keelson-agent-lock 1";
/// A holder that exits on contention (`--exit-on-lock-contention`) may need some time.
const ATTEMPTS: u32 = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// Held as long as this value lives.
#[derive(Debug)]
pub struct RootLock {
    _file: File,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum RootLockError {
    #[error(
        "another agent ({holder}) already runs on the root directory {root}; \
         stop it, or give this one a directory of its own with --root-dir"
    )]
    Held { root: PathBuf, holder: Holder },
    #[error("cannot use the lock file {path}: {cause}")]
    File { path: PathBuf, cause: std::io::Error },
}

/// The holder of a lock, as far as the file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Process(u32),
    Unknown,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Process(pid) => write!(formatter, "pid {pid}"),
            Holder::Unknown => formatter.write_str("pid unknown"),
        }
    }
}

impl RootLock {
    /// Acquires the lock of `root` for the process `pid`, creating the directory if it is missing.
    /// Waits at most half a second for a holder that is exiting.
    pub fn acquire(root: &Path, pid: u32) -> Result<RootLock, RootLockError> {
        let dir = root.join("keelson");
        let path = dir.join("agent.lock");
        let failed = |cause| RootLockError::File { path: path.clone(), cause };
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        for attempt in 1..=ATTEMPTS {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    write_holder(&mut file, pid).map_err(failed)?;
                    return Ok(RootLock { _file: file, path });
                }
                Err(Errno::WOULDBLOCK) if attempt < ATTEMPTS => {
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Err(RootLockError::Held { root: root.to_path_buf(), holder: read_holder(&mut file) })
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn write_holder(file: &mut File, pid: u32) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{FORMAT}\npid {pid}\n").as_bytes())
}

/// The holder that the file names. Bounded: the file may have any content.
fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    if file.seek(SeekFrom::Start(0)).is_err() || file.take(256).read_to_string(&mut text).is_err() {
        return Holder::Unknown;
    }
    parse_holder(&text)
}

fn parse_holder(text: &str) -> Holder {
    let mut lines = text.lines();
    if lines.next() != Some(FORMAT) {
        return Holder::Unknown;
    }
    lines
        .find_map(|line| line.strip_prefix("pid "))
        .and_then(|pid| pid.parse().ok())
        .map_or(Holder::Unknown, Holder::Process)
}

#[cfg(test)]
mod tests;
