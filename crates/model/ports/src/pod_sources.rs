//! Sources of manifests: a file, a directory, a URL.
//!
//! Rule: a source passes on bytes and reports what it could not read; it decides nothing about
//! them. Every update is a complete snapshot of the source, so that a lost one costs nothing.

pub use pod_model::pod::SourceKind;

use crate::PortFuture;

/// One manifest as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// The path, or the URL without its secrets, for messages.
    pub name: String,
    pub content: ManifestContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestContent {
    Bytes(Vec<u8>),
    /// It exists, but cannot be read; the error, in one sentence.
    Unreadable(String),
}

/// A complete snapshot of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSnapshot {
    /// In order of name. An empty list means that there are no pods (also where a path is missing).
    All(Vec<ManifestFile>),
    /// The source itself cannot be read now; its last snapshot still holds.
    Unreachable(String),
}

/// A source of manifests. Event-driven where possible; its slow re-list is internal to it.
pub trait ManifestSource: Send {
    fn kind(&self) -> SourceKind;
    /// Waits for the next snapshot: the first one at once, then one after each change. May be
    /// dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, SourceSnapshot>;
}
