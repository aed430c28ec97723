//! What a person at this machine may ask the agent, and what it answers; and the end that serves it.
//!
//! Rule: plain values that read and write as JSON in camelCase; fields are only ever added. The
//! agent answers from what it has published and never waits for a runtime or a disk. Who may ask is
//! for the end that serves.
//!
//! Over the local socket: `GET /v1/node` answers [`LocalNode`], `GET /v1/pods` [`LocalPods`],
//! `GET /v1/changes/VERSION` waits for something newer and answers [`LocalVersion`],
//! `GET /v1/pods/UID` [`LocalPodDetail`], `POST /v1/pods/UID/stop` [`LocalStopped`],
//! `POST /v1/pods` takes [`LocalManifests`] and answers [`LocalTaken`]; a refusal is a status of 4xx
//! or 5xx and a [`LocalRefusal`]. `GET /metrics` and `GET /metrics/probes` answer with text for
//! Prometheus. What is asked of the runtime itself is in `local_runtime`.

use serde::{Deserialize, Serialize};

use crate::PortFuture;

/// The agent and its sources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalNode {
    pub node_name: String,
    /// The container runtime's state in one line.
    pub runtime: String,
    /// Whether every source of pods has spoken; nothing is removed before.
    pub all_sources_have_spoken: bool,
    /// What is wrong with manifests now, a sentence each.
    pub troubles: Vec<String>,
    /// Events of the node itself, oldest first; the oldest go when there are too many.
    pub events: Vec<LocalEvent>,
    /// The file that the agent's own log goes to; empty where the agent does not know.
    pub agent_log: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPods {
    pub node: LocalNode,
    /// By namespace and name.
    pub pods: Vec<LocalPod>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// `file`, `http`, or `runtime` for what runs without anybody wanting it.
    pub source: String,
    /// The manifest's path or URL; empty where there is none.
    pub manifest: String,
    /// `Starting`, `Running`, `Ending`, `Ended`, `Finished`.
    pub stage: String,
    /// Why it is not where it should be.
    pub waiting_on: Option<LocalWaiting>,
    /// What is being done right now, a few words each.
    pub doing: Vec<String>,
    /// All containers that the runtime has of it, dead ones too, newest first for each name.
    pub containers: Vec<LocalContainer>,
    /// The v1 Pod with its status.
    pub object: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalWaiting {
    /// One sentence.
    pub why: String,
    /// What will happen by itself, or what a person can do.
    pub next_step: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalContainer {
    pub name: String,
    pub id: String,
    pub attempt: u32,
    /// `created`, `running`, `exited`, `unknown`.
    pub state: String,
    pub exit_code: i32,
    /// Nanoseconds since the epoch; zero where it has not happened.
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    /// Absolute.
    pub log_path: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPodDetail {
    pub pod: LocalPod,
    /// Oldest first; the oldest go when there are too many.
    pub events: Vec<LocalEvent>,
    /// In order of time.
    pub marks: Vec<LocalMark>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalEvent {
    /// Nanoseconds since the epoch, of the first and the last one alike.
    pub first_at: i64,
    pub last_at: i64,
    pub count: u32,
    /// `Normal` or `Warning`.
    pub kind: String,
    pub reason: String,
    pub message: String,
    /// Such as `spec.containers{web}`; empty for the pod itself.
    pub field_path: String,
}

/// A point of a pod's timeline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalMark {
    /// Nanoseconds since the epoch.
    pub at: i64,
    /// `seen`, `admitted`, `sandboxBegan`, `sandboxRan`, `pullBegan`, `imageReady`, `createBegan`,
    /// `started`, `firstReady`, `endAsked`, `containersEnded`, `cleanedUp`.
    pub what: String,
    /// Empty for the pod itself.
    pub container: String,
    pub attempt: u32,
}

/// Something changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalVersion {
    pub version: u64,
}

/// The pod will end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalStopped {
    pub uid: String,
}

/// Pods that somebody wants run from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalManifests {
    pub manifests: Vec<LocalManifest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalManifest {
    /// File and line, for messages.
    pub place: String,
    /// One document.
    pub text: String,
}

/// The pods will run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalTaken {
    /// `NAMESPACE/NAME` of each manifest, in their order, as the manifest says it.
    pub pods: Vec<LocalTakenPod>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalTakenPod {
    pub namespace: String,
    pub name: String,
    /// `new`, `changed`, or `same` where it was wanted like this already.
    pub outcome: String,
}

/// Why the agent does not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase", tag = "refusal")]
pub enum LocalRefusal {
    #[error("{message}")]
    NotFound { message: String },
    /// The pod is a manifest's: to end it, remove it there.
    #[error("{message}")]
    OfManifest { message: String, manifest: String },
    #[error("{message}")]
    NotNow { message: String },
}

/// The agent, as people at this machine see it.
pub trait LocalApi: Send + Sync {
    fn node(&self) -> LocalNode;
    fn pods(&self) -> LocalPods;
    fn pod(&self, uid: &str) -> Option<LocalPodDetail>;
    fn stop<'a>(&'a self, uid: &'a str) -> PortFuture<'a, Result<LocalStopped, LocalRefusal>>;
    /// Waits until what is shown is newer than version `since`; answers with its version. The
    /// first version is 0.
    fn changed(&self, since: u64) -> PortFuture<'_, u64>;
    /// What was counted, as text in the form of [`crate::metrics`].
    fn metrics(&self) -> String {
        String::new()
    }
    /// How probes went, in the same form; apart from the others, as upstream serves them.
    fn probe_metrics(&self) -> String {
        String::new()
    }
    /// Runs more pods. Only an agent that people hand their pods to can.
    fn take(&self, manifests: LocalManifests) -> PortFuture<'_, Result<LocalTaken, LocalRefusal>> {
        drop(manifests);
        let message = "this agent takes its pods from its manifests folder; put a file there, or \
                       run them apart with `keelson run --root DIR --state DIR`";
        let refused = LocalRefusal::NotNow { message: message.to_owned() };
        Box::pin(std::future::ready(Err(refused)))
    }
}

/// Serves the agent to people at this machine.
pub trait LocalEndpoint: Send + Sync {
    /// Where it serves, for messages.
    fn address(&self) -> String;
    /// Serves until dropped; returns only when it cannot serve (any more), with why.
    fn serve(&self, api: std::sync::Arc<dyn LocalApi>) -> PortFuture<'_, String>;
}
