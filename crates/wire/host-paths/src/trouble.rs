//! A file system error: the operation, the path, and the kernel's error.
//!
//! Rule: distinguishes errors that a retry can help, since callers act on that.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
#[error("{doing} {path}: {source}", path = path.display())]
pub struct Trouble {
    pub doing: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl Trouble {
    pub fn new(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { doing, path: path.to_owned(), source: source.into() }
    }

    pub fn refused(doing: &'static str, path: &Path, why: &str) -> Self {
        Self::new(doing, path, io::Error::new(io::ErrorKind::InvalidInput, why.to_owned()))
    }

    /// Whether the same call may succeed later without an intervention, once load or space allow
    /// it.
    pub fn is_passing(&self) -> bool {
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
pub trait Doing<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, Trouble>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, Trouble> {
        self.map_err(|error| Trouble::new(doing, path, error))
    }
}
