//! Errors of cgroup files, and how the files are read and written.
//!
//! Rule: each error has the path; a write's error also the value. Does not retry.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Larger than any cgroup file that is read; `memory.stat` of a big machine has 8 KiB,
/// `cgroup.procs` 7 bytes per process.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

pub type Result<T, E = CgroupError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no control groups are mounted at {0} (expected cgroup2, or cgroup v1 hierarchies)")]
    NotMounted(PathBuf),
    #[error("control group {0:?}: expected an absolute path without . and ..")]
    BadPath(String),
    #[error("the machine has no {controller} controller, which {needed_for} needs")]
    NoController { controller: &'static str, needed_for: String },
    #[error("reading {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("writing {value:?} to {path}: {source}")]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error("making the control group {path}: {source}")]
    Create { path: PathBuf, source: io::Error },
    #[error("removing the control group {path}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("{path} holds {text:?}; expected {expected}")]
    Malformed { path: PathBuf, text: String, expected: &'static str },
    #[error("processes remain in {path} after {rounds} rounds of killing")]
    ProcessesRemain { path: PathBuf, rounds: u32 },
}

impl CgroupError {
    /// The cgroup, or its file, does not exist.
    pub fn is_missing(&self) -> bool {
        self.kind().is_some_and(|kind| kind == io::ErrorKind::NotFound)
            // A cgroup that was removed while its file was open.
            || self.raw().is_some_and(|raw| raw == rustix::io::Errno::NODEV.raw_os_error())
    }

    fn source_error(&self) -> Option<&io::Error> {
        match self {
            Self::Read { source, .. }
            | Self::Write { source, .. }
            | Self::Create { source, .. }
            | Self::Remove { source, .. } => Some(source),
            _ => None,
        }
    }

    fn kind(&self) -> Option<io::ErrorKind> {
        self.source_error().map(io::Error::kind)
    }

    fn raw(&self) -> Option<i32> {
        self.source_error().and_then(io::Error::raw_os_error)
    }
}

pub(crate) fn read(path: &Path) -> Result<String> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read_bytes(path)?)
        .map_err(|error| CgroupError::Read { path: path.to_owned(), source: invalid(error) })
}

/// For files that contain names from outside, which may not be UTF-8.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| CgroupError::Read { path: path.to_owned(), source };
    let file = OpenOptions::new().read(true).open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The file's text, or `None` if this kernel, controller or cgroup has no such file.
pub(crate) fn read_if_exists(path: &Path) -> Result<Option<String>> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_missing() => Ok(None),
        // Some files exist and cannot be read, such as memory.peak of the root.
        Err(CgroupError::Read { source, .. }) if source.raw_os_error() == Some(95) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn read_number(path: &Path) -> Result<Option<u64>> {
    let Some(text) = read_if_exists(path)? else { return Ok(None) };
    number(path, text.trim()).map(Some)
}

/// `max` is [`u64::MAX`].
pub(crate) fn number(path: &Path, text: &str) -> Result<u64> {
    if text == "max" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| CgroupError::Malformed {
        path: path.to_owned(),
        text: text.chars().take(80).collect(),
        expected: "a number or max",
    })
}

/// One write call, as the kernel requires.
pub(crate) fn write(path: &Path, value: &str) -> Result<()> {
    let failed =
        |source| CgroupError::Write { path: path.to_owned(), value: value.to_owned(), source };
    let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    file.write_all(value.as_bytes()).map_err(failed)
}
