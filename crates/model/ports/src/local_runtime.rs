//! What people at this machine ask of the container runtime through the agent: streams into
//! containers, what they use, images.
//!
//! Rule: plain values that read and write as JSON in camelCase; fields are only ever added. A stream
//! is an address that works once: whoever asked connects to it, so that no byte of it passes the
//! agent. Every call has a deadline of the implementation's.
//!
//! Over the local socket: `POST /v1/containers/ID/exec` and `…/attach` take [`LocalCommand`],
//! `POST /v1/pods/UID/forward` nothing; each answers [`LocalStream`]. `GET /v1/containers/ID/process`
//! answers [`LocalProcess`], `GET /v1/usage` [`LocalUsages`], `GET /v1/images` [`LocalImages`],
//! `POST /v1/images/remove` takes and answers [`LocalImageName`].

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
    fn exec<'a>(&'a self, container: &'a str, command: LocalCommand) -> Answer<'a, LocalStream>;
    fn attach<'a>(&'a self, container: &'a str, command: LocalCommand) -> Answer<'a, LocalStream>;
    /// To the ports of the pod with this UID.
    fn forward<'a>(&'a self, pod: &'a str) -> Answer<'a, LocalStream>;
    fn process<'a>(&'a self, container: &'a str) -> Answer<'a, LocalProcess>;
    fn usage(&self) -> Answer<'_, LocalUsages>;
    fn images(&self) -> Answer<'_, LocalImages>;
    fn remove_image<'a>(&'a self, name: &'a str) -> Answer<'a, LocalImageName>;
}

pub type Answer<'a, T> = PortFuture<'a, Result<T, LocalRefusal>>;
