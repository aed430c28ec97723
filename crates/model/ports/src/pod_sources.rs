//! Where manifests come from: a file, a folder, a URL.
//!
//! Rule: a source hands over bytes and says what it could not read; it decides nothing about them.
//! Every telling is the whole of what the source has, so that one lost costs nothing.

use crate::PortFuture;

/// One manifest as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// The path or the URL without its secrets: what a message should name.
    pub name: String,
    pub content: ManifestContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestContent {
    Bytes(Vec<u8>),
    /// It is there, but cannot be read; why, in one sentence.
    Unreadable(String),
}

/// All that a source has at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceTelling {
    /// In order of name. An empty list means that there are no pods (also where a path is missing).
    All(Vec<ManifestFile>),
    /// The source itself cannot be read now; what it told before still stands.
    Unreachable(String),
}

/// A source of manifests. Event-driven where it can be; its slow re-list is its own business.
pub trait ManifestSource: Send {
    /// `file` or `http`, as the annotation of static pods says.
    fn kind(&self) -> &'static str;
    /// Waits until the source has something to tell: at first what is there, then each change.
    /// May be dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, SourceTelling>;
}
