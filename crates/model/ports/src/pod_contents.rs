//! The seam to objects whose content pods use: ConfigMaps and Secrets.
//!
//! Rules: asked by name, answered whole or with why not. What is in one may be a secret, so that
//! neither an error nor debug output shows any of it. Whether one may be missing, and which key is
//! used for what, is decided elsewhere. Variables use it today; content volumes and tokens of service
//! accounts are to come by the same way.

use std::collections::BTreeMap;
use std::fmt;

use crate::PortFuture;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentKind {
    ConfigMap,
    Secret,
}

/// Which object.
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

/// What is in one, by key.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ContentData(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for ContentData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Whoever was asked knows that there is none.
    #[error("not found")]
    NotFound,
    /// This node has nobody to ask, and why.
    #[error("{0}")]
    NoSource(String),
    /// Try again later; the text names the object.
    #[error("{0}")]
    Failed(String),
}

pub trait PodContents: Send + Sync {
    /// The object as it is now. Whoever asks sets a limit.
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentData, ContentError>>;
}
