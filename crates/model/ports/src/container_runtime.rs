//! The seam to whatever runs containers: a CRI runtime behind a socket, or the embedded one.
//!
//! Rule: the words here are ours, small and without a transport, so that the agent's tests need
//! no gRPC. Every call ends: an implementation sets a deadline and says so in the error. Does not
//! retry and does not judge: what an unmet condition means is for the caller.

use std::fmt;
use std::time::Duration;

use crate::PortFuture;

/// Whatever runs containers, as the agent sees it.
pub trait ContainerRuntime: Send + Sync {
    /// Which runtime answers, and which version of the interface it speaks.
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>>;

    /// Whether the runtime can take sandboxes and give them a network.
    fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// For example `containerd`.
    pub runtime_name: String,
    pub runtime_version: String,
    /// For example `v1`.
    pub interface_version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeStatus {
    pub conditions: Vec<RuntimeCondition>,
    /// Whether it knows the policy `Strict` of supplemental groups.
    pub strict_groups: bool,
}

impl RuntimeStatus {
    /// The condition of that kind, if the runtime reported it.
    pub fn condition(&self, kind: &RuntimeConditionKind) -> Option<&RuntimeCondition> {
        self.conditions.iter().find(|condition| condition.kind == *kind)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeCondition {
    pub kind: RuntimeConditionKind,
    pub met: bool,
    /// One word of the runtime's, for machines.
    pub reason: String,
    /// A sentence of the runtime's, for people.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeConditionKind {
    /// The runtime can start sandboxes and containers.
    RuntimeReady,
    /// The runtime can give a sandbox its network.
    NetworkReady,
    /// A condition of the runtime's own.
    Other(String),
}

impl From<String> for RuntimeConditionKind {
    fn from(name: String) -> Self {
        match name.as_str() {
            "RuntimeReady" => Self::RuntimeReady,
            "NetworkReady" => Self::NetworkReady,
            _ => Self::Other(name),
        }
    }
}

impl fmt::Display for RuntimeConditionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::RuntimeReady => "RuntimeReady",
            Self::NetworkReady => "NetworkReady",
            Self::Other(name) => name,
        })
    }
}

/// Why a call to the runtime did not succeed: one variant for each thing a caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerRuntimeError {
    /// Nobody answers, or the connection broke: try again later. The call may have had an effect.
    #[error("{call}: no runtime answers at {endpoint}: {message}")]
    Unavailable { call: &'static str, endpoint: String, cause: UnavailableCause, message: String },
    /// Our own limit passed. The call may still have an effect.
    #[error("{call}: no answer within {limit:?}")]
    DeadlineExceeded { call: &'static str, limit: Duration },
    /// This runtime does not know the call: use another way, do not try again.
    #[error("{call}: not implemented by this runtime: {message}")]
    Unimplemented { call: &'static str, message: String },
    /// The sandbox, container or image is not there.
    #[error("{call}: not found: {message}")]
    NotFound { call: &'static str, message: String },
    /// The runtime answered with another error; `code` is gRPC's name of it.
    #[error("{call}: {code}: {message}")]
    Refused { call: &'static str, code: String, message: String },
}

impl ContainerRuntimeError {
    /// The name of the call, as CRI has it.
    pub fn call(&self) -> &'static str {
        match self {
            Self::Unavailable { call, .. }
            | Self::DeadlineExceeded { call, .. }
            | Self::Unimplemented { call, .. }
            | Self::NotFound { call, .. }
            | Self::Refused { call, .. } => call,
        }
    }
}

/// What stands between us and the runtime, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableCause {
    /// There is no socket at the path.
    NoSocket,
    /// There is a socket, but nobody listens.
    NobodyListens,
    /// The socket may not be opened by this user.
    NotPermitted,
    /// The connection broke, or what answered does not speak the protocol.
    Broken,
}
