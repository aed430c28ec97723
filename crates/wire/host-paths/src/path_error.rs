//! A file system error: the operation, the path, and the kernel's error.
//!
//! Rule: distinguishes errors that a retry can help, since callers act on that.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
#[error("{operation} {path}: {source}", path = path.display())]
pub struct PathError {
    pub operation: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl PathError {
    pub fn new(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { operation, path: path.to_owned(), source: source.into() }
    }

    pub fn refused(operation: &'static str, path: &Path, reason: &str) -> Self {
        Self::new(operation, path, io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned()))
    }

    /// Whether the same call may succeed later without an intervention, once load or space allow
    /// it.
    pub fn is_transient(&self) -> bool {
        let Some(errno) = Errno::from_io_error(&self.source) else { return false };
        [
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::BUSY,
            Errno::AGAIN,
            Errno::INTR,
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::NOBUFS,
            Errno::IO,
            Errno::STALE,
            Errno::TIMEDOUT,
            Errno::TXTBSY,
            Errno::NOTEMPTY,
        ]
        .contains(&errno)
    }

    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    pub fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(&self.source)
    }
}

/// Adds the path and the operation to a kernel error.
pub trait PathErrorExt<T> {
    fn operation(self, operation: &'static str, path: &Path) -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> PathErrorExt<T> for Result<T, E> {
    fn operation(self, operation: &'static str, path: &Path) -> Result<T, PathError> {
        self.map_err(|error| PathError::new(operation, path, error))
    }
}
