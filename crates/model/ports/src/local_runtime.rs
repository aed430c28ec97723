//! What local clients ask of the container runtime through the agent: streams into containers,
//! their usage, images.
//!
//! Rule: plain values that serialize as JSON in camelCase; fields are only ever added. No byte of a
//! stream passes through the agent: a runtime in the agent's own process takes over the client's
//! connection; any other runtime returns a one-time address, and the client connects to it. Every
//! call has a deadline set by the implementation.
//!
//! Over the local socket: `POST /v1/containers/ID/exec` and `…/attach` take [`LocalCommand`],
//! `POST /v1/pods/UID/forward` nothing; each answers [`LocalStream`], or, where the request asks to
//! upgrade to [`STREAM_UPGRADE`] and the runtime takes the connection, with that upgrade.
//! `GET /v1/containers/ID/process` answers [`LocalProcess`], `GET /v1/usage` [`LocalUsages`],
//! `GET /v1/images` [`LocalImages`], `POST /v1/images/remove` takes and answers [`LocalImageName`].

use std::fmt;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::PortFuture;
use crate::local_api::LocalApiError;

#[cfg(test)]
mod tests;

/// A command to run in a container; without words, a request to attach to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalCommand {
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    /// Never together with a terminal, where stdout and stderr are one stream.
    pub stderr: bool,
    pub tty: bool,
}

/// The protocol that a stream's connection is upgraded to: remote commands speak
/// `v4.channel.k8s.io` on it, port-forward `portforward.k8s.io`.
pub const STREAM_UPGRADE: &str = "SPDY/3.1";

/// A request for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalStreamRequest {
    Exec {
        container: String,
        command: LocalCommand,
    },
    Attach {
        container: String,
        command: LocalCommand,
    },
    /// To the ports of the pod with this UID.
    Forward {
        pod: String,
    },
}

/// Serves a stream on a connection (a unix stream socket), of which these bytes were read already.
/// Dropping what it returns ends the stream.
pub type CarryStream = Box<dyn FnOnce(OwnedFd, Vec<u8>) -> PortFuture<'static, ()> + Send>;

/// How a client gets its stream. The provider limits how many are open at once.
pub enum StreamEndpoint {
    /// By connecting to another address.
    Address(LocalStream),
    /// On the connection that the client has open.
    Here(CarryStream),
}

impl fmt::Debug for StreamEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(stream) => formatter.debug_tuple("Address").field(stream).finish(),
            Self::Here(_) => formatter.write_str("Here"),
        }
    }
}

/// The one-time address of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalStream {
    pub url: String,
    /// The runtime's name, for messages.
    pub runtime: String,
}

/// A container's init process, by its PID on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalProcess {
    pub pid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalUsages {
    pub containers: Vec<LocalUsage>,
}

/// Resource usage of one container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalUsage {
    pub container_id: String,
    pub name: String,
    pub pod_namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    /// When the CPU time was read, in nanoseconds since the epoch.
    pub at: i64,
    /// CPU time since the start, in nanoseconds.
    pub cpu_nanos: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Bytes written to its writable layer.
    pub written_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalImages {
    pub images: Vec<LocalImage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalImage {
    pub id: String,
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    pub size_bytes: u64,
    pub pinned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalImageName {
    pub name: String,
}

/// What a command wrote before it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalCommandOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

/// The runtime, as local clients see it through the agent.
pub trait LocalRuntime: Send + Sync {
    /// For clients that can only connect to another address.
    fn address(&self, stream_request: LocalStreamRequest) -> LocalRuntimeResult<'_, LocalStream>;
    /// For clients whose own connection can carry the stream.
    fn stream(&self, stream_request: LocalStreamRequest) -> LocalRuntimeResult<'_, StreamEndpoint>;
    fn process<'a>(&'a self, container: &'a str) -> LocalRuntimeResult<'a, LocalProcess>;
    fn usage(&self) -> LocalRuntimeResult<'_, LocalUsages>;
    fn images(&self) -> LocalRuntimeResult<'_, LocalImages>;
    fn remove_image<'a>(&'a self, name: &'a str) -> LocalRuntimeResult<'a, LocalImageName>;
    /// Runs a command in a container to its end, without input.
    fn run_command<'a>(
        &'a self,
        container: &'a str,
        command: Vec<String>,
    ) -> LocalRuntimeResult<'a, LocalCommandOutput> {
        drop(command);
        unsupported(container, "run a command")
    }
    /// Writes a checkpoint of a container to an absolute path. `seconds` of 0 leaves the time limit
    /// to the runtime.
    fn checkpoint<'a>(
        &'a self,
        container: &'a str,
        path: String,
        seconds: i64,
    ) -> LocalRuntimeResult<'a, ()> {
        drop((path, seconds));
        unsupported(container, "write a checkpoint")
    }
}

fn unsupported<T: Send + 'static>(container: &str, what: &str) -> LocalRuntimeResult<'static, T> {
    let message = format!("container {container}: this runtime cannot {what}");
    Box::pin(std::future::ready(Err(LocalApiError::TemporarilyUnavailable { message })))
}

pub type LocalRuntimeResult<'a, T> = PortFuture<'a, Result<T, LocalApiError>>;
