//! What people at this machine ask of the container runtime through the agent: streams into
//! containers, what they use, images.
//!
//! Rule: plain values that read and write as JSON in camelCase; fields are only ever added. No byte
//! of a stream passes the agent: a runtime in the agent's own process takes over the connection of
//! whoever asked; of another runtime there is an address that works once, and whoever asked connects
//! to it. Every call has a deadline of the implementation's.
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
use crate::local_api::LocalRefusal;

/// A command to run in a container, or (without words) how to join it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalCommand {
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    /// Never together with a terminal: there it is one with the output.
    pub stderr: bool,
    pub tty: bool,
}

/// What a connection becomes that carries a stream: remote commands speak `v4.channel.k8s.io` on it,
/// port-forward `portforward.k8s.io`.
pub const STREAM_UPGRADE: &str = "SPDY/3.1";

/// A stream that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamWish {
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

/// How a stream is to be had. How many are open at once is limited by who offers them.
pub enum StreamOffer {
    /// By connecting elsewhere.
    Address(LocalStream),
    /// On a connection that is there already.
    Here(CarryStream),
}

impl fmt::Debug for StreamOffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(stream) => formatter.debug_tuple("Address").field(stream).finish(),
            Self::Here(_) => formatter.write_str("Here"),
        }
    }
}

/// Where a stream is to be had, once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalStream {
    pub url: String,
    /// The runtime's name, for messages.
    pub runtime: String,
}

/// A container's first process, as this machine numbers it.
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

/// What one container uses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalUsage {
    pub container_id: String,
    pub name: String,
    pub pod_namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    /// When the processor time was read, in nanoseconds since the epoch.
    pub at: i64,
    /// Processor time since the start, in nanoseconds.
    pub cpu_nanos: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// What it has written to its own root.
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

/// The runtime, as people at this machine see it through the agent.
pub trait LocalRuntime: Send + Sync {
    /// For who can only connect elsewhere.
    fn address(&self, wish: StreamWish) -> Answer<'_, LocalStream>;
    /// For who has a connection to give.
    fn stream(&self, wish: StreamWish) -> Answer<'_, StreamOffer>;
    fn process<'a>(&'a self, container: &'a str) -> Answer<'a, LocalProcess>;
    fn usage(&self) -> Answer<'_, LocalUsages>;
    fn images(&self) -> Answer<'_, LocalImages>;
    fn remove_image<'a>(&'a self, name: &'a str) -> Answer<'a, LocalImageName>;
}

pub type Answer<'a, T> = PortFuture<'a, Result<T, LocalRefusal>>;
