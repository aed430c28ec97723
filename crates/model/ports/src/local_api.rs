//! The agent's local API: what operators on this machine can ask the agent, its answers, and the
//! server for it.
//!
//! Rule: plain values that serialize as JSON in camelCase; fields are only ever added. The agent
//! answers from what it has published and never waits for a runtime or a disk. Access control
//! belongs to the server.
//!
//! Over the local socket: `GET /v1/node` answers [`LocalNode`], `GET /v1/pods` [`LocalPods`],
//! `GET /v1/changes/VERSION` waits for something newer and answers [`LocalStateVersion`],
//! `GET /v1/pods/UID` [`LocalPodDetail`], `POST /v1/pods/UID/stop` [`LocalStopAccepted`],
//! `POST /v1/pods` takes [`LocalManifests`] and answers [`LocalAcceptedPods`]; an error is a status
//! of 4xx or 5xx and a [`LocalApiError`]. `GET /metrics` and `GET /metrics/probes` answer with text
//! for Prometheus. Requests to the runtime itself are in `local_runtime`.

use serde::{Deserialize, Serialize};

use crate::PortFuture;
use crate::local_plugins::LocalPlugins;

#[cfg(test)]
mod tests;

/// The agent and its sources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalNode {
    pub node_name: String,
    /// The container runtime's state in one line.
    pub runtime: String,
    /// Whether every source of pods has reported; no pod is removed before that.
    #[serde(rename = "allSourcesHaveSpoken")]
    pub all_sources_reported: bool,
    /// The current errors of manifests and sources, a sentence each.
    #[serde(rename = "troubles")]
    pub source_errors: Vec<String>,
    /// Events of the node itself, oldest first; the oldest are dropped when there are too many.
    pub events: Vec<LocalEvent>,
    /// The agent's own log file; empty where the agent does not know it.
    pub agent_log: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPods {
    pub node: LocalNode,
    /// Sorted by namespace and name.
    pub pods: Vec<LocalPod>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// `file`, `http`, or `runtime` for a pod that runs but is in no source.
    pub source: String,
    /// The manifest's path or URL; empty where there is none.
    pub manifest: String,
    /// `Starting`, `Running`, `Ending`, `Ended`, `Finished`.
    pub stage: String,
    /// Why it has not reached its desired state.
    pub waiting_on: Option<LocalWaiting>,
    /// The actions in flight, a few words each.
    pub doing: Vec<String>,
    /// All its containers in the runtime, dead ones included, newest first for each name.
    pub containers: Vec<LocalContainer>,
    /// The v1 Pod with its status.
    pub object: serde_json::Value,
}

impl LocalPod {
    /// The source of a pod that only the runtime knows.
    pub const RUNTIME_SOURCE: &str = "runtime";

    /// Whether a source of pods lists it, or did.
    pub fn is_desired(&self) -> bool {
        self.source != Self::RUNTIME_SOURCE
    }

    /// The greatest one is meant where several pods have the same name.
    pub fn precedence(&self, uid: Option<&str>) -> (bool, bool) {
        let is_ending = matches!(self.stage.as_str(), "Ending" | "Ended" | "Finished");
        (uid == Some(self.uid.as_str()), !is_ending)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalWaiting {
    /// One sentence.
    pub why: String,
    /// What the agent will do next, or what an operator can do.
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
    /// An absolute path.
    pub log_path: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPodDetail {
    pub pod: LocalPod,
    /// Oldest first; the oldest are dropped when there are too many.
    pub events: Vec<LocalEvent>,
    /// In order of time.
    pub marks: Vec<LocalMilestone>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalEvent {
    /// When the first of `count` equal events happened, in nanoseconds since the epoch.
    pub first_at: i64,
    /// When the last of them happened.
    pub last_at: i64,
    pub count: u32,
    /// `Normal` or `Warning`.
    pub kind: String,
    pub reason: String,
    pub message: String,
    /// Such as `spec.containers{web}`; empty for the pod itself.
    pub field_path: String,
}

/// A milestone of a pod's timeline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalMilestone {
    /// Nanoseconds since the epoch.
    pub at: i64,
    /// `seen`, `admitted`, `sandboxBegan`, `sandboxRan`, `pullBegan`, `imageReady`, `createBegan`,
    /// `started`, `firstReady`, `endAsked`, `containersEnded`, `cleanedUp`.
    #[serde(rename = "what")]
    pub milestone: String,
    /// Empty for the pod itself.
    pub container: String,
    pub attempt: u32,
}

/// The version of the agent's published state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalStateVersion {
    pub version: u64,
}

/// Answer to a stop request: the pod will be terminated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalStopAccepted {
    pub uid: String,
}

/// A request to run these pods from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalManifests {
    pub manifests: Vec<LocalManifest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalManifest {
    /// File and line, for messages.
    #[serde(rename = "place")]
    pub location: String,
    /// One document.
    pub text: String,
}

/// Answer to [`LocalManifests`]: the pods will be run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalAcceptedPods {
    /// The namespace and name that each manifest gives, in the order of the request.
    pub pods: Vec<LocalAcceptedPod>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalAcceptedPod {
    pub namespace: String,
    pub name: String,
    /// `new`, `changed`, or `same` if the pod was already desired exactly like this.
    pub outcome: String,
}

/// Why the agent rejects a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase", tag = "refusal")]
pub enum LocalApiError {
    #[error("{message}")]
    NotFound { message: String },
    /// The pod comes from a manifest: to stop it, remove it there.
    #[error("{message}")]
    #[serde(rename = "ofManifest")]
    OwnedByManifest { message: String, manifest: String },
    #[error("{message}")]
    #[serde(rename = "notNow")]
    TemporarilyUnavailable { message: String },
}

/// The agent, as local clients see it.
pub trait LocalApi: Send + Sync {
    fn node(&self) -> LocalNode;
    fn pods(&self) -> LocalPods;
    fn pod(&self, uid: &str) -> Option<LocalPodDetail>;
    /// The pod of this name that a source wants to run, not one that only the runtime still has. Of
    /// several (a new pod beside the one that it replaces) the one with this UID; else one that is
    /// not ending.
    fn pod_by_name(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<LocalPod> {
        let pods = self.pods().pods.into_iter();
        let same = pods.filter(|pod| pod.namespace == namespace && pod.name == name);
        same.filter(LocalPod::is_desired).max_by_key(|pod| pod.precedence(uid))
    }
    /// The containers of a pod, as in [`LocalPod::containers`]; empty if there is no such pod.
    fn containers(&self, uid: &str) -> Vec<LocalContainer> {
        self.pod(uid).map(|detail| detail.pod.containers).unwrap_or_default()
    }
    fn stop<'a>(&'a self, uid: &'a str)
    -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>>;
    /// Waits until the published state is newer than version `since`, and returns its version. The
    /// first version is 0.
    fn changed(&self, since: u64) -> PortFuture<'_, u64>;
    /// The node's plugins.
    fn plugins(&self) -> LocalPlugins {
        LocalPlugins::default()
    }
    /// The metrics, as text in the form of [`crate::metrics`].
    fn metrics(&self) -> String {
        String::new()
    }
    /// The metrics of probes, in the same form; a separate endpoint, as upstream serves them.
    fn probe_metrics(&self) -> String {
        String::new()
    }
    /// Accepts more pods to run. Only an agent that takes its pods from local clients implements
    /// it.
    fn take(
        &self,
        manifests: LocalManifests,
    ) -> PortFuture<'_, Result<LocalAcceptedPods, LocalApiError>> {
        drop(manifests);
        let message = "this agent takes its pods from its manifest directory; put a file there, or \
                       run them separately with `keelson run --root DIR --state DIR`";
        let error = LocalApiError::TemporarilyUnavailable { message: message.to_owned() };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Serves the local API.
pub trait LocalEndpoint: Send + Sync {
    /// The listen address, for messages.
    fn address(&self) -> String;
    /// Serves until dropped. Returns only with an error: it could not start or continue to serve.
    fn serve(&self, api: std::sync::Arc<dyn LocalApi>) -> PortFuture<'_, String>;
}
