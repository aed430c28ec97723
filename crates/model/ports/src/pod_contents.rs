//! The port to what pods take from the API: ConfigMaps, Secrets, service account tokens.
//!
//! Rules: objects are read and watched one by one, by name, since a node may list none of them; the
//! answer is the whole object or the reason why not. The content is secret, so neither an error nor
//! debug output shows any of it. Whether an object may be missing, which key is used for what, and
//! when a token is renewed is decided elsewhere.

use std::collections::BTreeMap;
use std::fmt;

use crate::PortFuture;
use crate::api_time::ApiTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentKind {
    ConfigMap,
    Secret,
}

impl ContentKind {
    /// As errors of the API name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// The kind of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// A ConfigMap or a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentObject {
    pub uid: String,
    pub resource_version: String,
    /// Its data never changes: it need not be watched.
    pub immutable: bool,
    /// The `type` of a Secret; empty for a ConfigMap.
    pub secret_type: String,
    pub data: ContentData,
    /// The binary data of a ConfigMap: files of volumes, never variables.
    pub binary_data: ContentData,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The API server answered that there is none.
    #[error("not found")]
    NotFound,
    /// This node has no API server to ask, and why.
    #[error("{0}")]
    NoSource(String),
    /// The API server refuses it to this node. Just after a pod was bound the node authorizer may
    /// not know of it yet.
    #[error("{0}")]
    Forbidden(String),
    /// Retry later; the text names the object.
    #[error("{0}")]
    Failed(String),
}

/// The states of one object, as they come. Stops when dropped.
pub trait ContentWatch: Send {
    /// Waits for the next state; the first one comes as soon as the API server has answered. An
    /// error other than `NotFound` means that the state is not known; the watch retries by itself.
    /// May be dropped and called again without losing a state.
    fn next(&mut self) -> PortFuture<'_, Result<ContentObject, ContentError>>;
}

/// A token of a service account, valid as long as a pod exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenDemand {
    pub namespace: String,
    pub service_account: String,
    /// None: the API server's own.
    pub audience: Option<String>,
    pub expiration_seconds: Option<i64>,
    pub pod_name: String,
    pub pod_uid: String,
}

#[derive(Clone, PartialEq, Eq)]
pub struct IssuedToken {
    pub token: String,
    pub expires_at: ApiTime,
    /// The lifetime that the API server has granted.
    pub lifetime_seconds: i64,
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("IssuedToken")
            .field("expires_at", &self.expires_at)
            .field("lifetime_seconds", &self.lifetime_seconds)
            .finish_non_exhaustive()
    }
}

pub trait PodContents: Send + Sync {
    /// The current object. The caller sets the timeout.
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentObject, ContentError>>;
    /// Must be called within a task runtime.
    fn watch(&self, wanted: &ContentName) -> Box<dyn ContentWatch>;
    /// A new token. The caller sets the timeout.
    fn token<'a>(
        &'a self,
        demand: &'a TokenDemand,
    ) -> PortFuture<'a, Result<IssuedToken, ContentError>>;
}
