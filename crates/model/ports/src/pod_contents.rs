//! The port to objects whose content pods use: ConfigMaps and Secrets.
//!
//! Rules: read by name; the answer is the whole object or the reason why not. The content may be
//! secret, so neither an error nor debug output shows any of it. Whether one may be missing, and
//! which key is used for what, is decided elsewhere. Environment variables use it today; content
//! volumes and service account tokens are to use the same port.

use std::collections::BTreeMap;
use std::fmt;

use crate::PortFuture;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentKind {
    ConfigMap,
    Secret,
}

/// The kind of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentName {
    pub kind: ContentKind,
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ContentName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The data of one object, by key.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ContentData(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for ContentData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The API server answered that there is none.
    #[error("not found")]
    NotFound,
    /// This node has no API server to ask, and why.
    #[error("{0}")]
    NoSource(String),
    /// Retry later; the text names the object.
    #[error("{0}")]
    Failed(String),
}

pub trait PodContents: Send + Sync {
    /// The current object. The caller sets the timeout.
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentData, ContentError>>;
}
