//! Errors, one variant for each different reaction of a caller.
//!
//! Every text names the file, digest or field, the value found and what was expected.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::reference::ReferenceError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed: disk, permissions, a missing kernel feature.
    #[error("{what} {path}: {cause}")]
    File { what: &'static str, path: PathBuf, cause: io::Error },
    #[error(
        "{path} says format {found}; this program reads and writes format {expected}: \
         use the program that made the folder, or another folder"
    )]
    UnknownVersion { path: PathBuf, found: String, expected: u32 },
    /// A file of the store cannot be parsed; a kill never causes this.
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("{text:?} is no digest: expected sha256: and 64 lower-case hexadecimal digits")]
    Digest { text: String },
    #[error("content {expected} has other bytes: their digest is {found}")]
    DigestMismatch { expected: Digest, found: Digest },
    #[error("content {digest} ended after {received} bytes; {expected} were announced")]
    Truncated { digest: Digest, received: u64, expected: u64 },
    #[error("content {digest} is longer than the {expected} bytes announced")]
    TooLong { digest: Digest, expected: u64 },
    #[error("the layer's tar has the digest {found}; the image's configuration says {expected}")]
    DiffIdMismatch { expected: Digest, found: Digest },
    /// A value exceeds one of [`crate::Limits`].
    #[error("{what}: {found} exceeds the limit of {limit}")]
    Limit { what: String, found: u64, limit: u64 },
    #[error("content {0} is not in the store")]
    ContentMissing(Digest),
    #[error("no image {0:?} is in the store")]
    ImageMissing(String),
    #[error("snapshot {0} is not in the store")]
    SnapshotMissing(Digest),
    #[error("{name:?} names several images: {found}")]
    Ambiguous { name: String, found: String },
    /// An image's JSON violates the specification.
    #[error("{what}: {reason}")]
    Document { what: String, reason: String },
    #[error("no manifest of {what} is for {wanted}; it has {available}")]
    NoPlatform { what: String, wanted: String, available: String },
    /// A malformed or hostile tar, compressed stream or archive.
    #[error("{what}: {reason}")]
    Archive { what: String, reason: String },
    #[error(
        "{id:?} cannot name a view: expected 1 to 128 letters, digits, '.', '_' or '-', not starting with '.'"
    )]
    ViewName { id: String },
    #[error("view {0:?} exists already, for another image")]
    ViewTaken(String),
    #[error("mounting an overlay at {target}: {step}: {cause}")]
    Mount { target: PathBuf, step: &'static str, cause: io::Error },
    /// The content source (a registry, an archive) failed; a retry may succeed.
    #[error("fetching {digest}: {reason}")]
    Source { digest: Digest, reason: String },
}

impl Error {
    pub(crate) fn archive(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Archive { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn document(what: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Error::Document { what: what.into(), reason: reason.to_string() }
    }

    pub(crate) fn damaged(path: &Path, reason: impl std::fmt::Display) -> Self {
        Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Adds the operation and the path to an error of the operating system.
pub(crate) trait PathContext<T> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> PathContext<T> for std::result::Result<T, E> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|cause| Error::File { what, path: path.to_owned(), cause: cause.into() })
    }
}
