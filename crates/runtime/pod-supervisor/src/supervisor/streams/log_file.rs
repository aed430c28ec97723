//! A container's log file: its path, opening it, and writing lines to it.
//!
//! Rule: a pod may be able to write to its log directory, and the log is opened as root. Below the
//! directory that the client named no symlink is followed, and an existing file is opened only if
//! it is a regular file with one link: not a device, where opening may have side effects, and not a
//! FIFO, which would block a rotation. Reopening a log does not allocate.

use std::ffi::{CStr, CString};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use container_create::spec::StreamsSpec;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::super::log_lines::LineSink;

/// Retries when the file changes between two checks.
const OPEN_ATTEMPTS: usize = 16;

#[derive(Debug)]
pub(in crate::supervisor) struct LogPath {
    /// Given by the client; symlinks in it are followed.
    dir: CString,
    /// Relative to it.
    name: CString,
}

impl LogPath {
    /// None if no log is wanted.
    pub(in crate::supervisor) fn of(spec: &StreamsSpec) -> io::Result<Option<Self>> {
        if spec.log_path.is_empty() {
            return Ok(None);
        }
        let path = Path::new(&spec.log_path);
        let odd = || {
            let text = format!("{:?} is no path of a log", spec.log_path);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        // An older server sends only the path of the log.
        let (dir, name) = match spec.log_dir.as_str() {
            "" => (path.parent(), path.file_name().map(Path::new)),
            dir => (Some(Path::new(dir)), path.strip_prefix(dir).ok()),
        };
        let (dir, name) = dir.zip(name).ok_or_else(odd)?;
        let text = |part: &Path| CString::new(part.as_os_str().as_bytes()).map_err(|_| odd());
        if name.as_os_str().is_empty() || dir.as_os_str().is_empty() {
            return Err(odd());
        }
        Ok(Some(Self { dir: text(dir)?, name: text(name)? }))
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(self.dir.as_c_str(), flags, Mode::empty())?;
        let at = |flags, mode| {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let flags = flags | OFlags::CLOEXEC;
            rustix::fs::openat2(&dir, self.name.as_c_str(), flags, mode, resolve)
        };
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::WRONLY;
        for _ in 0..OPEN_ATTEMPTS {
            let done = match at(OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(found) => return reopen_regular(&found),
                Err(Errno::NOENT) => at(create, Mode::from_raw_mode(0o640)),
                Err(errno) => Err(errno),
            };
            match done {
                // The file was created or moved between the two.
                Err(Errno::EXIST | Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Opens for writing the file behind an `O_PATH` descriptor, whatever its path means by now.
fn reopen_regular(found: &OwnedFd) -> Result<OwnedFd, Errno> {
    let stat = rustix::fs::fstat(found)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => return Err(Errno::MLINK),
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP),
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::NXIO),
    }
    let mut path = [0; 32];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/fd/{}\0", found.as_raw_fd()).map_err(|_| Errno::NAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

pub(super) struct ContainerLogFile {
    path: Option<LogPath>,
    file: Option<OwnedFd>,
    /// The last write ended inside a line.
    partial_write: bool,
}

impl ContainerLogFile {
    /// Without a path nothing is written.
    pub(super) fn open(path: Option<LogPath>) -> Result<Self, Errno> {
        let file = path.as_ref().map(LogPath::open).transpose()?;
        Ok(Self { path, file, partial_write: false })
    }

    /// Reopens by path; on an error the open file stays in use.
    pub(super) fn reopen(&mut self) -> Result<(), Errno> {
        if let Some(path) = &self.path {
            self.file = Some(path.open()?);
            self.partial_write = false;
        }
        Ok(())
    }
}

impl LineSink for ContainerLogFile {
    fn write(&mut self, lines: &[u8]) {
        let Some(file) = &self.file else { return };
        if self.partial_write && rustix::io::write(file, b"\n").is_ok() {
            self.partial_write = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match rustix::io::write(file, rest) {
                Ok(0) => break,
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // The disk is full: these lines are lost, and the container goes on.
                Err(_) => {
                    self.partial_write = rest.len() != lines.len() || self.partial_write;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
