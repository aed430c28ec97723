//! The port to the container runtime: a CRI runtime behind a socket, or the embedded one.
//!
//! Rule: the types here are ours, small and independent of a transport, so that the agent's tests
//! need no gRPC. Every call ends: an implementation sets a deadline and names it in the error. Does
//! not retry; what an unmet condition means is for the caller.

use std::fmt;
use std::time::Duration;

use crate::PortFuture;

/// The container runtime, as the agent sees it.
pub trait ContainerRuntime: Send + Sync {
    /// The runtime's name, and the version of CRI that it speaks.
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>>;

    /// Whether the runtime can run sandboxes and give them a network.
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
    pub strict_supplemental_groups: bool,
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
    /// The runtime's reason, one word.
    pub reason: String,
    /// The runtime's message, one sentence.
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
    /// No connection, or it broke: retry later. The call may have had an effect.
    #[error("{call}: no runtime answers at {endpoint}: {message}")]
    Unavailable { call: &'static str, endpoint: String, cause: UnavailableCause, message: String },
    /// Our own timeout passed. The call may still have an effect.
    #[error("{call}: no answer within {limit:?}")]
    DeadlineExceeded { call: &'static str, limit: Duration },
    /// This runtime does not implement the call: use another way, do not retry.
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

    /// What statuses and events of a pod say: the runtime's own message where it answered, without
    /// our name of the call and gRPC's of the code; our words where it did not.
    /// upstream: pkg/kubelet/kuberuntime/kuberuntime_container.go (`s.Message()`)
    pub fn message_for_pods(&self) -> String {
        match self {
            Self::Unimplemented { message, .. }
            | Self::NotFound { message, .. }
            | Self::Refused { message, .. } => message.clone(),
            Self::Unavailable { .. } | Self::DeadlineExceeded { .. } => self.to_string(),
        }
    }
}

/// Why the runtime cannot be reached, as far as the error shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableCause {
    /// There is no socket at the path.
    NoSocket,
    /// There is a socket, but no process listens on it.
    NotListening,
    /// This user has no permission to open the socket.
    NotPermitted,
    /// The connection broke, or the peer does not speak the protocol.
    Broken,
}

#[cfg(test)]
mod tests;
