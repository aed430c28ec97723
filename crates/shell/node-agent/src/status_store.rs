//! The state of every pod and of the node that other parts read: the local socket, the kubelet's
//! port, metrics.
//!
//! Rules: any task may write; each write is short and takes only the store's locks, so no reader
//! and no writer waits for the runtime or a disk (`changed` alone waits, for a newer version). A
//! pod worker writes only the status, marks and events of its own pod; which pods are here is
//! written by the owner of the pod workers. Events and marks are kept in rings, so that nothing
//! grows.

use crate::metrics::{Metrics, names};
use pod_desired::API_SOURCE;
use pod_lifecycle::{EventType, Milestone, PodEvent, PodPlan, PodStage, WaitReason};
use pod_manifest::static_pod::{CONFIG_SEEN_ANNOTATION, SourceKind};
use pod_model::pod::Pod;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::PodStatus;
use ports::{ApiTime, EventSink, NodeEventRecord, PodEventRecord};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::info;

mod agent_api;
mod pod_gauges;

pub(crate) use agent_api::AgentApi;

const MAX_EVENTS: usize = 100;
const MAX_MARKS: usize = 200;

/// The kind of a pod's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PodSource {
    File,
    Url,
    Api,
    /// It runs, and no source has it.
    #[default]
    Runtime,
}

impl PodSource {
    /// As the source annotation and the local API name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => SourceKind::File.word(),
            Self::Url => SourceKind::Url.word(),
            Self::Api => API_SOURCE,
            Self::Runtime => "runtime",
        }
    }
}

impl From<SourceKind> for PodSource {
    fn from(kind: SourceKind) -> Self {
        match kind {
            SourceKind::File => Self::File,
            SourceKind::Url => Self::Url,
        }
    }
}

/// Where a pod comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodOrigin {
    pub(crate) source: PodSource,
    /// The path or URL; empty where there is none.
    pub(crate) manifest: String,
}

#[derive(Debug, Clone)]
pub(crate) struct CountedEvent {
    pub(crate) first_at: ApiTime,
    pub(crate) last_at: ApiTime,
    pub(crate) count: u32,
    pub(crate) event: PodEvent,
}

/// All that is known of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodStatusEntry {
    pub(crate) pod: Arc<Pod>,
    pub(crate) origin: PodOrigin,
    /// Its manifest is gone.
    pub(crate) is_unwanted: bool,
    pub(crate) stage: Option<PodStage>,
    pub(crate) status: Option<PodStatus>,
    pub(crate) waiting: Option<WaitReason>,
    /// Why its status cannot be written to the API server.
    pub(crate) write_error: Option<String>,
    pub(crate) doing: Vec<String>,
    pub(crate) events: VecDeque<CountedEvent>,
    pub(crate) marks: VecDeque<(ApiTime, Milestone)>,
}

/// A desired pod that has no UID yet.
pub(crate) struct PodWithoutUid {
    pub(crate) pod: Arc<Pod>,
    pub(crate) origin: PodOrigin,
    /// Why; None while the first listing of the runtime is missing.
    pub(crate) waiting: Option<WaitReason>,
}

/// The state of the node's manifest sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourcesState {
    pub(crate) all_have_spoken: bool,
    pub(crate) source_errors: Vec<String>,
}

/// Cheap to clone; all clones are one store.
#[derive(Clone)]
pub(crate) struct StatusStore {
    shared: Arc<StatusStoreInner>,
}

struct StatusStoreInner {
    /// Boxed, as a map keeps up to half of its entries unused.
    pods: Mutex<BTreeMap<String, Box<PodStatusEntry>>>,
    /// Pods that have no UID yet, by a placeholder.
    without_uid: Mutex<BTreeMap<String, PodStatusEntry>>,
    sources: Mutex<SourcesState>,
    /// Records that cannot be written, by directory and name, with the error.
    failed_writes: Mutex<BTreeMap<(&'static str, String), String>>,
    sink: Option<Arc<dyn EventSink>>,
    node_name: String,
    node_events: Mutex<VecDeque<CountedEvent>>,
    metrics: Metrics,
    /// Incremented when a pod comes, goes, gets a new status or waits for something else. Not by
    /// events, marks, records and the state of sources.
    version: watch::Sender<u64>,
}

impl StatusStore {
    /// Events also go to `sink`, if there is one.
    pub(crate) fn new(sink: Option<Arc<dyn EventSink>>, node_name: &str) -> Self {
        let version = watch::Sender::new(0);
        let shared = StatusStoreInner {
            pods: Mutex::default(),
            without_uid: Mutex::default(),
            sources: Mutex::default(),
            failed_writes: Mutex::default(),
            sink,
            node_name: node_name.to_owned(),
            node_events: Mutex::default(),
            metrics: Metrics::default(),
            version,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The agent's metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Box<PodStatusEntry>>> {
        self.shared.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the pods and increments the version.
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Box<PodStatusEntry>>) -> T) -> T {
        let changed = change(&mut self.pods());
        self.shared.version.send_modify(|version| *version += 1);
        changed
    }

    /// Waits for a version newer than `since`.
    pub(crate) async fn changed(&self, since: u64) -> u64 {
        let mut version = self.shared.version.subscribe();
        let newer = version.wait_for(|version| *version > since).await;
        newer.map_or(since, |version| *version)
    }

    /// Of what the store shows now.
    pub(crate) fn version(&self) -> u64 {
        *self.shared.version.borrow()
    }

    /// Static pods that are here, also those that end.
    pub(crate) fn static_pods(&self) -> Vec<Arc<Pod>> {
        let pods = self.pods();
        let is_static = |entry: &PodStatusEntry| {
            matches!(entry.origin.source, PodSource::File | PodSource::Url)
        };
        pods.values().filter(|entry| is_static(entry)).map(|entry| entry.pod.clone()).collect()
    }

    /// Adds the pod; a known pod keeps its status, events and marks.
    pub(crate) fn upsert(&self, pod: &Arc<Pod>, origin: &PodOrigin) {
        self.change(|pods| {
            self.without_uid().remove(&placeholder_uid(pod));
            let entry = pods.entry(pod.metadata.uid.to_string()).or_default();
            entry.pod = pod.clone();
            entry.origin = origin.clone();
            entry.is_unwanted = false;
        });
    }

    /// The pod is not desired any more.
    pub(crate) fn mark_unwanted(&self, uid: &str) {
        if let Some(entry) = self.pods().get_mut(uid) {
            entry.is_unwanted = true;
        }
    }

    /// Desired pods that have no UID yet, because a running pod may lend them one. They are listed
    /// until they are put here with their UID or are not among `present` any more.
    pub(crate) fn set_without_uid(&self, pods: Vec<PodWithoutUid>, present: &BTreeSet<String>) {
        let mut known = self.without_uid();
        let before = known.len();
        known.retain(|_, entry| present.contains(&entry.pod.full_name()));
        let mut changed = known.len() != before;
        for PodWithoutUid { pod, origin, waiting } in pods {
            let key = placeholder_uid(&pod);
            let same = |known: &PodStatusEntry| known.pod == pod && known.waiting == waiting;
            if !known.get(&key).is_some_and(same) {
                known.insert(
                    key,
                    PodStatusEntry { pod, origin, waiting, ..PodStatusEntry::default() },
                );
                changed = true;
            }
        }
        drop(known);
        if changed {
            self.shared.version.send_modify(|version| *version += 1);
        }
    }

    fn without_uid(&self) -> MutexGuard<'_, BTreeMap<String, PodStatusEntry>> {
        self.shared.without_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a pod, also of one without a UID.
    fn entry(&self, uid: &str) -> Option<PodStatusEntry> {
        let known = self.pods().get(uid).map(|entry| PodStatusEntry::clone(entry));
        known.or_else(|| self.without_uid().get(uid).cloned())
    }

    /// The specification of a pod that is or was desired.
    pub(crate) fn wanted_pod(&self, uid: &str) -> Option<Arc<Pod>> {
        let pods = self.pods();
        pods.get(uid)
            .filter(|entry| entry.origin.source != PodSource::Runtime)
            .map(|entry| entry.pod.clone())
    }

    pub(crate) fn retain(&self, stays: impl Fn(&str) -> bool) {
        self.change(|pods| pods.retain(|uid, _| stays(uid)));
    }

    pub(crate) fn set_waiting(&self, uid: &str, waiting: WaitReason) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                entry.waiting = Some(waiting);
            }
        });
    }

    /// Why the pod's status cannot be written to the API server; None once it is.
    pub(crate) fn set_write_error(&self, uid: &str, why: Option<String>) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                entry.write_error = why;
            }
        });
    }

    /// Records the newest plan and the actions in flight.
    pub(crate) fn set_plan(&self, uid: &str, plan: &PodPlan, doing: Vec<String>, now: ApiTime) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                if let Some(took) = entry.start_time(&plan.status, now) {
                    self.metrics().took(&names::POD_START_DURATION, &[], took);
                }
                entry.stage = Some(plan.stage);
                entry.status = Some(plan.status.clone());
                entry.waiting.clone_from(&plan.waiting_on);
                entry.doing = doing;
            }
        });
    }

    pub(crate) fn mark(&self, uid: &str, marks: Vec<(ApiTime, Milestone)>) {
        if marks.is_empty() {
            return;
        }
        if let Some(entry) = self.pods().get_mut(uid) {
            entry.marks.extend(marks);
            let surplus = entry.marks.len().saturating_sub(MAX_MARKS);
            // Keep the first ones, which show how the pod started, and drop the ones in the middle.
            let from = surplus.min(MAX_MARKS / 2);
            entry.marks.drain(from..from + surplus);
        }
    }

    /// Emits an event: a log line, the pod's ring, and the sink.
    pub(crate) fn emit(&self, pod: &Pod, event: PodEvent, now: ApiTime) {
        let meta = &pod.metadata;
        let kind = match event.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        info!(
            object = format!("{}/{}", meta.namespace, meta.name),
            field_path = event.field_path.as_deref().unwrap_or_default(),
            kind = "Pod",
            api_version = "v1",
            r#type = kind,
            reason = event.reason,
            message = event.message,
            "Event occurred"
        );
        if let Some(sink) = &self.shared.sink {
            sink.emit(&PodEventRecord {
                at: now,
                namespace: meta.namespace.to_string(),
                name: meta.name.to_string(),
                uid: meta.uid.to_string(),
                warning: event.kind == EventType::Warning,
                reason: event.reason.clone(),
                message: event.message.clone(),
                field_path: event.field_path.clone(),
            });
        }
        if let Some(entry) = self.pods().get_mut(&*meta.uid) {
            add(&mut entry.events, event, now);
        }
    }

    /// Emits an event of a pod by its UID; nothing if the pod is not known.
    pub(crate) fn emit_by_uid(&self, uid: &str, event: PodEvent, now: ApiTime) {
        let pod = self.pods().get(uid).map(|entry| entry.pod.clone());
        if let Some(pod) = pod {
            self.emit(&pod, event, now);
        }
    }

    /// Emits an event of the node: a log line, the node's ring, and the sink.
    pub(crate) fn emit_node_event(
        &self,
        kind: EventType,
        reason: &str,
        message: &str,
        now: ApiTime,
    ) {
        let node = &self.shared.node_name;
        info!(
            object = node,
            kind = "Node",
            api_version = "v1",
            r#type = if kind == EventType::Warning { "Warning" } else { "Normal" },
            reason,
            message,
            "Event occurred"
        );
        if let Some(sink) = &self.shared.sink {
            sink.emit_node_event(&NodeEventRecord {
                at: now,
                node: node.clone(),
                warning: kind == EventType::Warning,
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
        }
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let event = PodEvent { kind, reason, message, field_path: None };
        add(&mut self.node_events(), event, now);
    }

    fn node_events(&self) -> MutexGuard<'_, VecDeque<CountedEvent>> {
        self.shared.node_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed_writes(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), String>> {
        self.shared.failed_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record that must outlive the agent cannot be written.
    pub(crate) fn record_write_failed(&self, dir: &'static str, name: &str, why: &str) {
        self.failed_writes().insert((dir, name.to_owned()), why.to_owned());
    }

    pub(crate) fn record_written(&self, dir: &'static str, name: &str) {
        self.failed_writes().remove(&(dir, name.to_owned()));
    }

    /// One sentence about all records that cannot be written.
    pub(crate) fn record_write_error(&self) -> Option<String> {
        let failed_writes = self.failed_writes();
        let why = failed_writes.values().next()?;
        let count = failed_writes.len();
        Some(format!(
            "{count} record(s) cannot be written and would be forgotten if the agent ended now: {why}"
        ))
    }

    pub(crate) fn set_sources_state(&self, state: SourcesState) {
        let mut sources = self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner);
        *sources = state;
    }

    pub(crate) fn sources(&self) -> SourcesState {
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PodStatusEntry {
    /// How long the pod took from first seen to running, if it has just begun to run.
    fn start_time(&self, status: &PodStatus, now: ApiTime) -> Option<Duration> {
        let was_pending = self.status.as_ref()?.phase == PodPhase::Pending;
        if !was_pending || status.phase != PodPhase::Running {
            return None;
        }
        // No such mark: an earlier agent began to start the pod.
        let (marked, _) = self.marks.iter().find(|(_, mark)| *mark == Milestone::Seen)?;
        let seen = first_seen(&self.pod).unwrap_or(*marked);
        let nanos = now.nanos().saturating_sub(seen.nanos());
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or_default()))
    }
}

/// When a source first listed the pod.
pub(crate) fn first_seen(pod: &Pod) -> Option<ApiTime> {
    ApiTime::parse(pod.metadata.annotations.get(CONFIG_SEEN_ANNOTATION)?)
}

/// Placeholder for the UID that a pod does not have yet.
fn placeholder_uid(pod: &Pod) -> String {
    format!("no-uid-yet-{}", pod.full_name())
}

/// Adds an event to a ring; a repeated event is counted and moves to the end.
fn add(events: &mut VecDeque<CountedEvent>, event: PodEvent, now: ApiTime) {
    if let Some(at) = events.iter().position(|known| known.event == event)
        && let Some(mut known) = events.remove(at)
    {
        known.count = known.count.saturating_add(1);
        known.last_at = now;
        events.push_back(known);
        return;
    }
    events.push_back(CountedEvent { first_at: now, last_at: now, count: 1, event });
    while events.len() > MAX_EVENTS {
        events.pop_front();
    }
}
