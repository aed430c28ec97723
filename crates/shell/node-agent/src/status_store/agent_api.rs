//! The local API's view of the store.
//!
//! Rule: reads only what is published. A stop of a pod that has a manifest is refused with the
//! manifest's name: the pod would be started again at once.

use super::{CountedEvent, PodSource, PodStatusEntry, pod_gauges};
use crate::plugins::NodePlugins;
use crate::pods::PodContext;
use crate::runtime_watch::RuntimeView;
use pod_lifecycle::{EventType, Milestone, ObservedContainer, PodStage};
use ports::local_api::{
    LocalApi, LocalApiError, LocalContainer, LocalEvent, LocalMilestone, LocalNode, LocalPod,
    LocalPodDetail, LocalPods, LocalStopAccepted, LocalWaiting,
};
use ports::local_plugins::LocalPlugins;
use ports::runtime_objects::ContainerState;
use ports::{ApiTime, MetricSource, PortFuture};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;

/// Implements the agent's local API.
pub(crate) struct AgentApi {
    pub(crate) context: Arc<PodContext>,
    pub(crate) runtime: watch::Receiver<RuntimeView>,
    pub(crate) metric_sources: Vec<Arc<dyn MetricSource>>,
    pub(crate) plugins: Option<NodePlugins>,
}

impl LocalApi for AgentApi {
    fn node(&self) -> LocalNode {
        let status_store = &self.context.status_store;
        let sources = status_store.sources();
        let mut source_errors = sources.source_errors;
        source_errors.extend(status_store.record_write_error());
        LocalNode {
            node_name: self.context.settings.lifecycle.node_name.clone(),
            runtime: self.runtime.borrow().summary(),
            all_sources_reported: sources.all_have_spoken && self.context.api_pods.is_complete(),
            source_errors,
            events: status_store.node_events().iter().map(local_event).collect(),
            agent_log: String::new(),
        }
    }

    fn pods(&self) -> LocalPods {
        let status_store = &self.context.status_store;
        // Pods without a UID first: one that gets its UID meanwhile is found twice and listed once.
        let without: Vec<(String, PodStatusEntry)> = status_store
            .without_uid()
            .iter()
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        let mut entries: Vec<(String, PodStatusEntry)> = status_store
            .pods()
            .iter()
            .map(|(uid, entry)| (uid.clone(), PodStatusEntry::clone(entry)))
            .collect();
        for (key, entry) in without {
            let name = entry.pod.full_name();
            if entries.iter().all(|(_, known)| known.pod.full_name() != name) {
                entries.push((key, entry));
            }
        }
        let mut pods: Vec<LocalPod> =
            entries.iter().map(|(uid, entry)| self.local_pod(uid, entry)).collect();
        pods.sort_by(|one, other| {
            (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
        });
        LocalPods { node: self.node(), pods }
    }

    fn pod(&self, uid: &str) -> Option<LocalPodDetail> {
        let entry = self.context.status_store.entry(uid)?;
        Some(LocalPodDetail {
            pod: self.local_pod(uid, &entry),
            events: entry.events.iter().map(local_event).collect(),
            marks: entry.marks.iter().map(|(at, mark)| local_mark(*at, mark)).collect(),
        })
    }

    fn pod_by_name(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<LocalPod> {
        let pods = self.entries_named(namespace, name).into_iter();
        let pods = pods.map(|(uid, entry)| self.local_pod(&uid, &entry));
        pods.filter(LocalPod::is_desired).max_by_key(|pod| pod.precedence(uid))
    }

    fn containers(&self, uid: &str) -> Vec<LocalContainer> {
        self.local_containers(uid)
    }

    fn changed(&self, since: u64) -> PortFuture<'_, u64> {
        Box::pin(self.context.status_store.changed(since))
    }

    fn metrics(&self) -> String {
        let mut families = pod_gauges::families(&self.context);
        families.extend(self.metric_sources.iter().flat_map(|source| source.families()));
        ports::metrics::text(families)
    }

    fn plugins(&self) -> LocalPlugins {
        self.plugins.as_ref().map(NodePlugins::list).unwrap_or_default()
    }

    fn probe_metrics(&self) -> String {
        ports::metrics::text(self.context.probes.families())
    }

    fn stop<'a>(
        &'a self,
        uid: &'a str,
    ) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        Box::pin(async move {
            let entry = self.context.status_store.entry(uid);
            let Some(entry) = entry else {
                let message = format!("no pod has UID {uid}");
                return Err(LocalApiError::NotFound { message });
            };
            let name = entry.pod.full_name();
            if entry.origin.source == PodSource::Api && !entry.is_unwanted {
                let message = format!(
                    "pod {name} comes from the API server and would stay there; delete it with kubectl"
                );
                return Err(LocalApiError::TemporarilyUnavailable { message });
            }
            if entry.origin.manifest.is_empty() {
                let message = format!("pod {name} is ending already");
                return Err(LocalApiError::TemporarilyUnavailable { message });
            }
            let manifest = entry.origin.manifest;
            let message = format!(
                "pod {name} runs from {manifest} and would be started again; remove it there"
            );
            Err(LocalApiError::OwnedByManifest { message, manifest })
        })
    }
}

impl AgentApi {
    /// The pods of this name, those without a UID only if there are no others.
    fn entries_named(&self, namespace: &str, name: &str) -> Vec<(String, PodStatusEntry)> {
        let status_store = &self.context.status_store;
        let is_named = |entry: &PodStatusEntry| {
            let meta = &entry.pod.metadata;
            *meta.namespace == *namespace && *meta.name == *name
        };
        let found: Vec<(String, PodStatusEntry)> = status_store
            .pods()
            .iter()
            .filter(|(_, entry)| is_named(entry))
            .map(|(uid, entry)| (uid.clone(), PodStatusEntry::clone(entry)))
            .collect();
        if !found.is_empty() {
            return found;
        }
        let without = status_store.without_uid();
        let without = without.iter().filter(|(_, entry)| is_named(entry));
        without.map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }

    /// Newest first for each name.
    fn local_containers(&self, uid: &str) -> Vec<LocalContainer> {
        let observed = self.context.observed.latest(uid);
        let mut containers: Vec<LocalContainer> =
            observed.iter().flat_map(|pod| &pod.containers).map(local_container).collect();
        containers.sort_by(|one, other| {
            (&one.name, other.attempt, other.created_at).cmp(&(
                &other.name,
                one.attempt,
                one.created_at,
            ))
        });
        containers
    }

    fn local_pod(&self, uid: &str, entry: &PodStatusEntry) -> LocalPod {
        let meta = &entry.pod.metadata;
        LocalPod {
            uid: uid.to_owned(),
            namespace: meta.namespace.to_string(),
            name: meta.name.to_string(),
            source: entry.origin.source.name().to_owned(),
            manifest: entry.origin.manifest.clone(),
            stage: stage_name(entry.stage).to_owned(),
            waiting_on: self.waiting(entry),
            doing: entry.doing.clone(),
            containers: self.local_containers(uid),
            object: object(entry),
        }
    }

    /// Before its first plan a pod waits at least for the runtime.
    fn waiting(&self, entry: &PodStatusEntry) -> Option<LocalWaiting> {
        if let Some(waiting) = &entry.waiting {
            let (why, next_step) = (waiting.why.clone(), waiting.next_step.clone());
            return Some(LocalWaiting { why, next_step });
        }
        if let Some(why) = &entry.write_error {
            return Some(LocalWaiting {
                why: format!("its status cannot be written to the API server: {why}"),
                next_step: "it is tried again by itself; the pod goes on meanwhile".to_owned(),
            });
        }
        entry.stage.is_none().then(|| LocalWaiting {
            why: format!("nothing is known of it yet: {}", self.runtime.borrow().summary()),
            next_step: "it goes on by itself once the container runtime answers".to_owned(),
        })
    }
}

fn stage_name(stage: Option<PodStage>) -> &'static str {
    match stage {
        None => "Starting",
        Some(PodStage::Running) => "Running",
        Some(PodStage::Ending) => "Ending",
        Some(PodStage::Ended) => "Ended",
        Some(PodStage::Finished) => "Finished",
    }
}

/// The v1 Pod with the status that the agent computed.
fn object(entry: &PodStatusEntry) -> Value {
    let mut object = serde_json::to_value(&*entry.pod).unwrap_or_default();
    let status = entry.status.as_ref().map(serde_json::to_value);
    // In place: the pod may be large.
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "metadata" | "spec" | "status"));
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), "Pod".into());
        if let Some(status) = status {
            fields.insert("status".to_owned(), status.unwrap_or_default());
        }
    }
    object
}

fn local_container(container: &ObservedContainer) -> LocalContainer {
    let record = &container.record;
    let state = match record.state {
        ContainerState::Created => "created",
        ContainerState::Running => "running",
        ContainerState::Exited => "exited",
        ContainerState::Unknown => "unknown",
    };
    LocalContainer {
        name: record.name.clone(),
        id: record.id.clone(),
        attempt: record.attempt,
        state: state.to_owned(),
        exit_code: record.exit_code,
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        log_path: record.log_path.clone(),
    }
}

fn local_event(pod_gauges: &CountedEvent) -> LocalEvent {
    LocalEvent {
        first_at: pod_gauges.first_at.nanos(),
        last_at: pod_gauges.last_at.nanos(),
        count: pod_gauges.count,
        kind: match pod_gauges.event.kind {
            EventType::Normal => "Normal".to_owned(),
            EventType::Warning => "Warning".to_owned(),
        },
        reason: pod_gauges.event.reason.clone(),
        message: pod_gauges.event.message.clone(),
        field_path: pod_gauges.event.field_path.clone().unwrap_or_default(),
    }
}

fn local_mark(at: ApiTime, mark: &Milestone) -> LocalMilestone {
    let (milestone, container, attempt) = match mark {
        Milestone::Seen => ("seen", "", 0),
        Milestone::Admitted => ("admitted", "", 0),
        Milestone::SandboxBegan => ("sandboxBegan", "", 0),
        Milestone::SandboxRan => ("sandboxRan", "", 0),
        Milestone::PullBegan { container } => ("pullBegan", container.as_str(), 0),
        Milestone::ImageReady { container } => ("imageReady", container.as_str(), 0),
        Milestone::CreateBegan { container, attempt } => {
            ("createBegan", container.as_str(), *attempt)
        }
        Milestone::Started { container, attempt } => ("started", container.as_str(), *attempt),
        Milestone::FirstReady => ("firstReady", "", 0),
        Milestone::TerminationRequested => ("endAsked", "", 0),
        Milestone::ContainersEnded => ("containersEnded", "", 0),
        Milestone::CleanedUp => ("cleanedUp", "", 0),
    };
    let container = container.to_owned();
    LocalMilestone { at: at.nanos(), milestone: milestone.to_owned(), container, attempt }
}
