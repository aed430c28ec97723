//! What is known of every pod right now, for whoever asks: people at this machine, later an API.
//!
//! Rule: workers write their own entry and nobody else's; reading never waits for anything but the
//! lock. Events and marks are kept in rings, so that nothing grows.

use pod_lifecycle::{EventKind, Mark, PodEvent, PodPlan, Stage, Waiting};
use pod_model::pod::Pod;
use pod_model::pod::status::PodStatus;
use ports::{ApiTime, EventSink, PodOccurrence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tracing::info;

mod answers;

pub(crate) use answers::LocalStatus;

const MOST_EVENTS: usize = 100;
const MOST_MARKS: usize = 200;

/// Where a pod comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodOrigin {
    /// `file`, `http`, or `runtime`.
    pub(crate) source: String,
    pub(crate) manifest: String,
}

#[derive(Debug, Clone)]
pub(crate) struct CountedEvent {
    pub(crate) first_at: ApiTime,
    pub(crate) last_at: ApiTime,
    pub(crate) count: u32,
    pub(crate) event: PodEvent,
}

/// All that is shown of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodEntry {
    pub(crate) pod: Arc<Pod>,
    pub(crate) origin: PodOrigin,
    pub(crate) stage: Option<Stage>,
    pub(crate) status: Option<PodStatus>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) doing: Vec<String>,
    pub(crate) events: VecDeque<CountedEvent>,
    pub(crate) marks: VecDeque<(ApiTime, Mark)>,
}

/// What is known of the node's sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourcesState {
    pub(crate) all_have_spoken: bool,
    pub(crate) troubles: Vec<String>,
}

/// Cheap to clone; all clones are one board.
#[derive(Clone)]
pub(crate) struct Board {
    shared: Arc<Shared>,
}

struct Shared {
    pods: Mutex<BTreeMap<String, PodEntry>>,
    sources: Mutex<SourcesState>,
    /// Records that cannot be written, by folder and name: why.
    unwritten: Mutex<BTreeMap<(&'static str, String), String>>,
    sink: Option<Arc<dyn EventSink>>,
    /// Grows with every change.
    version: watch::Sender<u64>,
}

impl Board {
    /// Events also go to `sink`, where there is one.
    pub(crate) fn new(sink: Option<Arc<dyn EventSink>>) -> Self {
        let version = watch::Sender::new(0);
        let shared = Shared {
            pods: Mutex::default(),
            sources: Mutex::default(),
            unwritten: Mutex::default(),
            sink,
            version,
        };
        Self { shared: Arc::new(shared) }
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, PodEntry>> {
        self.shared.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the pods, and says so.
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, PodEntry>) -> T) -> T {
        let changed = change(&mut self.pods());
        self.shared.version.send_modify(|version| *version += 1);
        changed
    }

    /// Waits until there is something newer than that version.
    pub(crate) async fn changed(&self, since: u64) -> u64 {
        let mut version = self.shared.version.subscribe();
        let newer = version.wait_for(|version| *version > since).await;
        newer.map_or(since, |version| *version)
    }

    /// The pod is there from now on; what is known of it already stays.
    pub(crate) fn put(&self, pod: &Arc<Pod>, origin: &PodOrigin) {
        self.change(|pods| {
            let entry = pods.entry(pod.metadata.uid.to_string()).or_default();
            entry.pod = pod.clone();
            entry.origin = origin.clone();
        });
    }

    pub(crate) fn keep_only(&self, stays: impl Fn(&str) -> bool) {
        self.change(|pods| pods.retain(|uid, _| stays(uid)));
    }

    pub(crate) fn wait(&self, uid: &str, waiting: Waiting) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                entry.waiting = Some(waiting);
            }
        });
    }

    /// What the newest plan says, and what is being done.
    pub(crate) fn show(&self, uid: &str, plan: &PodPlan, doing: Vec<String>) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                entry.stage = Some(plan.stage);
                entry.status = Some(plan.status.clone());
                entry.waiting.clone_from(&plan.waiting_on);
                entry.doing = doing;
            }
        });
    }

    pub(crate) fn mark(&self, uid: &str, marks: Vec<(ApiTime, Mark)>) {
        if marks.is_empty() {
            return;
        }
        if let Some(entry) = self.pods().get_mut(uid) {
            entry.marks.extend(marks);
            let surplus = entry.marks.len().saturating_sub(MOST_MARKS);
            // The first ones tell how the pod started; those in the middle go.
            let from = surplus.min(MOST_MARKS / 2);
            entry.marks.drain(from..from + surplus);
        }
    }

    /// Tells an event: a log line, the pod's ring, and whoever else wants to hear.
    pub(crate) fn tell(&self, pod: &Pod, event: PodEvent, now: ApiTime) {
        let meta = &pod.metadata;
        let kind = match event.kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
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
            sink.tell(&PodOccurrence {
                at: now,
                namespace: meta.namespace.to_string(),
                name: meta.name.to_string(),
                uid: meta.uid.to_string(),
                warning: event.kind == EventKind::Warning,
                reason: event.reason.clone(),
                message: event.message.clone(),
                field_path: event.field_path.clone(),
            });
        }
        if let Some(entry) = self.pods().get_mut(&*meta.uid) {
            entry.add(event, now);
        }
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), String>> {
        self.shared.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What must outlive the agent cannot be written down now.
    pub(crate) fn record_failed(&self, folder: &'static str, name: &str, why: &str) {
        self.unwritten().insert((folder, name.to_owned()), why.to_owned());
    }

    pub(crate) fn record_written(&self, folder: &'static str, name: &str) {
        self.unwritten().remove(&(folder, name.to_owned()));
    }

    /// One sentence about all records that cannot be written.
    pub(crate) fn record_trouble(&self) -> Option<String> {
        let unwritten = self.unwritten();
        let why = unwritten.values().next()?;
        let count = unwritten.len();
        Some(format!(
            "{count} record(s) cannot be written and would be forgotten if the agent ended now: {why}"
        ))
    }

    pub(crate) fn set_sources(&self, state: SourcesState) {
        let mut sources = self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner);
        *sources = state;
    }

    pub(crate) fn sources(&self) -> SourcesState {
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PodEntry {
    fn add(&mut self, event: PodEvent, now: ApiTime) {
        if let Some(at) = self.events.iter().position(|known| known.event == event)
            && let Some(mut known) = self.events.remove(at)
        {
            known.count = known.count.saturating_add(1);
            known.last_at = now;
            self.events.push_back(known);
            return;
        }
        self.events.push_back(CountedEvent { first_at: now, last_at: now, count: 1, event });
        while self.events.len() > MOST_EVENTS {
            self.events.pop_front();
        }
    }
}
