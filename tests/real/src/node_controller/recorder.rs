//! Records changes of nodes, pods and events, in the order of their resource versions.
//!
//! Rule: changes only, in a form that two runs can have in common: no UIDs, no versions, and of
//! times only their kind: kept, current, or of the object's creation. What the nodes themselves
//! post is recorded like everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apiserver_client::{ApiClient, Watch, WatchedObject};
use ports::cluster_api::{ObjectSelector, Resource};
use ports::cluster_objects::{ApiObject, Node, NodeCondition, ObjectIdentity, ObjectMeta, Pod};
use ports::{ApiTime, FeedEvent, ObjectFeed as _};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::hollow::now;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedChange {
    /// The resource version after the change: orders changes of all kinds.
    pub version: u64,
    pub at: Instant,
    /// The node that changed, or whose pod changed.
    pub node: String,
    /// A description of the change.
    pub what: String,
}

/// The fields of an event object that are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedEvent {
    metadata: ObjectMeta,
    involved_object: InvolvedObject,
    reason: String,
    message: String,
    #[serde(rename = "type")]
    kind: String,
    source: RecordedEventSource,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct InvolvedObject {
    kind: String,
    name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct RecordedEventSource {
    component: String,
}

impl ApiObject for RecordedEvent {
    const RESOURCE: Resource = Resource::EVENTS;
    fn identity(&self) -> ObjectIdentity<'_> {
        ObjectIdentity {
            namespace: &self.metadata.namespace,
            name: &self.metadata.name,
            uid: &self.metadata.uid,
            resource_version: &self.metadata.resource_version,
        }
    }
}

impl WatchedObject for RecordedEvent {
    const IN_PROTOBUF: bool = false;
    fn from_protobuf(_: bytes::Bytes) -> Result<Self, String> {
        Err("JSON was requested".to_owned())
    }
}

#[derive(Debug, Default)]
struct ChangeLog {
    entries: Vec<RecordedChange>,
    nodes: BTreeMap<String, BTreeSet<String>>,
    conditions: BTreeMap<String, Vec<NodeCondition>>,
    pods: BTreeMap<String, (String, BTreeSet<String>)>,
}

/// Watches and records. Stops when it is dropped.
#[derive(Debug)]
pub struct ChangeRecorder {
    change_log: Arc<Mutex<ChangeLog>>,
    _tasks: JoinSet<()>,
}

impl ChangeRecorder {
    /// Starts all watches.
    pub fn start(client: &ApiClient) -> Self {
        let change_log = Arc::new(Mutex::new(ChangeLog::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(record_changes(client.clone(), change_log.clone(), ChangeLog::node));
        tasks.spawn(record_changes(client.clone(), change_log.clone(), ChangeLog::pod));
        tasks.spawn(record_changes(client.clone(), change_log.clone(), ChangeLog::event));
        Self { change_log, _tasks: tasks }
    }

    /// Waits until nothing has changed for `quiet`, but at least for `least` and at most for
    /// `most`; returns and clears the changes so far, in the order of their versions.
    pub async fn take_changes(
        &self,
        least: Duration,
        quiet: Duration,
        most: Duration,
    ) -> Vec<RecordedChange> {
        let began = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let newest = self.change_log().entries.last().map_or(began, |entry| entry.at);
            let settled = began.elapsed() >= least && newest.max(began).elapsed() >= quiet;
            if settled || began.elapsed() >= most {
                break;
            }
        }
        let mut entries = std::mem::take(&mut self.change_log().entries);
        entries.sort_by_key(|entry| entry.version);
        entries
    }

    /// The changes since the last cut, without clearing them.
    pub fn so_far(&self) -> Vec<RecordedChange> {
        self.change_log().entries.clone()
    }

    fn change_log(&self) -> std::sync::MutexGuard<'_, ChangeLog> {
        self.change_log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends every change of one kind to the change log.
async fn record_changes<T: WatchedObject>(
    client: ApiClient,
    change_log: Arc<Mutex<ChangeLog>>,
    write: fn(&mut ChangeLog, &T, bool),
) {
    let mut feed: Watch<T> = Watch::start(&client, ObjectSelector::default());
    loop {
        let event = feed.next().await;
        let mut change_log = change_log.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            FeedEvent::Listed(page) => page.iter().for_each(|it| write(&mut change_log, it, true)),
            FeedEvent::Applied(object) => write(&mut change_log, &object, true),
            FeedEvent::Deleted(object) => write(&mut change_log, &object, false),
            _ => {}
        }
    }
}

impl ChangeLog {
    fn put(&mut self, version: &str, node: &str, what: String) {
        let version = version.parse().unwrap_or(0);
        self.entries.push(RecordedChange {
            version,
            at: Instant::now(),
            node: node.to_owned(),
            what,
        });
    }

    fn node(&mut self, node: &Node, there: bool) {
        let (name, version) = (&node.metadata.name, &node.metadata.resource_version);
        if !there {
            self.nodes.remove(name);
            self.conditions.remove(name);
            self.put(version, name, "node gone".to_owned());
            return;
        }
        let facts = node_facts(node);
        let before = self.nodes.insert(name.clone(), facts.clone()).unwrap_or_default();
        let conditions = node.status.conditions.clone();
        let known = self.conditions.insert(name.clone(), conditions).unwrap_or_default();
        for change in changes(&before, &facts) {
            let times = node_times(&change, node, &known).unwrap_or_default();
            self.put(version, name, change + &times);
        }
    }

    fn pod(&mut self, pod: &Pod, there: bool) {
        let (name, version) = (&pod.metadata.name, &pod.metadata.resource_version);
        let node = pod.spec.node_name.clone();
        // Names of pods are `role-node`; the role is what two nodes have in common.
        let role = name.split('-').next().unwrap_or(name);
        if !there {
            self.pods.remove(name);
            self.put(version, &node, format!("pod {role} gone"));
            return;
        }
        let facts = pod_facts(pod);
        let before = self.pods.insert(name.clone(), (node.clone(), facts.clone()));
        for change in changes(&before.unwrap_or_default().1, &facts) {
            let times = pod_times(&change, pod).unwrap_or_default();
            self.put(version, &node, format!("pod {role} {change}{times}"));
        }
    }

    fn event(&mut self, event: &RecordedEvent, there: bool) {
        if !there {
            return;
        }
        let name = &event.involved_object.name;
        let node = match event.involved_object.kind.as_str() {
            "Node" => name.clone(),
            "Pod" => name.split_once('-').map_or(name.clone(), |(_, node)| node.to_owned()),
            _ => return,
        };
        let role = match event.involved_object.kind.as_str() {
            "Pod" => format!("pod {} ", name.split('-').next().unwrap_or(name)),
            _ => String::new(),
        };
        let RecordedEvent { kind, reason, message, source, .. } = event;
        let what = format!("{role}event {kind} {reason} by {}: {message}", source.component);
        self.put(&event.metadata.resource_version, &node, what);
    }
}

fn changes(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    let gone = before.difference(after).map(|fact| format!("-{fact}"));
    // A condition that changed is described by its new state alone.
    let gone = gone.filter(|fact| !fact.starts_with("-condition"));
    gone.chain(after.difference(before).map(|fact| format!("+{fact}"))).collect()
}

/// A time this close to its observation is the time of the write.
const OF_NOW: Duration = Duration::from_secs(5);

fn is_of_now(time: Option<ApiTime>) -> bool {
    let off = time.map(|time| now().nanos().abs_diff(time.nanos()));
    off.is_some_and(|off| Duration::from_nanos(off) <= OF_NOW)
}

/// The times of a condition that only a controller writes: Unknown.
fn node_times(change: &str, node: &Node, known: &[NodeCondition]) -> Option<String> {
    let (kind, _) = change.strip_prefix("+condition ")?.split_once("=Unknown ")?;
    let condition = node.status.conditions.iter().find(|it| it.kind == kind)?;
    let before = known.iter().find(|it| it.kind == kind);
    let heartbeat = match before {
        Some(before) if before.last_heartbeat_time == condition.last_heartbeat_time => "kept",
        None if node.metadata.creation_timestamp == condition.last_heartbeat_time => {
            "of the creation"
        }
        _ => "another",
    };
    let transition = if is_of_now(condition.last_transition_time) { "of now" } else { "another" };
    Some(format!("; heartbeat {heartbeat}, transition {transition}"))
}

/// The same of a pod's conditions that are False, and of its DisruptionTarget condition.
fn pod_times(change: &str, pod: &Pod) -> Option<String> {
    let (kind, status) = change.strip_prefix("+condition ")?.split_once('=')?;
    let theirs = status.starts_with("False") || kind == "DisruptionTarget";
    let condition = pod.status.conditions.iter().find(|it| it.kind == kind && theirs)?;
    let transition = if is_of_now(condition.last_transition_time) { "of now" } else { "older" };
    Some(format!("; transition {transition}"))
}

const NODE_CONDITIONS: [&str; 5] =
    ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

fn node_facts(node: &Node) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for taint in &node.spec.taints {
        let timed = if taint.time_added.is_some() { "" } else { " without time" };
        facts.insert(format!("taint {}={}:{}{timed}", taint.key, taint.value, taint.effect));
    }
    for it in &node.status.conditions {
        if NODE_CONDITIONS.contains(&it.kind.as_str()) {
            facts.insert(format!(
                "condition {}={} {} {}",
                it.kind, it.status, it.reason, it.message
            ));
        }
    }
    if !node.spec.pod_cidrs.is_empty() {
        facts.insert(format!("{} pod ranges", node.spec.pod_cidrs.len()));
    }
    for label in ["beta.kubernetes.io/os", "beta.kubernetes.io/arch"] {
        if let Some(value) = node.metadata.labels.get(label) {
            facts.insert(format!("label {label}={value}"));
        }
    }
    facts
}

fn pod_facts(pod: &Pod) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for it in &pod.status.conditions {
        if matches!(it.kind.as_str(), "Ready" | "DisruptionTarget") {
            facts.insert(format!(
                "condition {}={} {} {}",
                it.kind, it.status, it.reason, it.message
            ));
        }
    }
    if pod.metadata.deletion_timestamp.is_some() {
        facts.insert("terminating".to_owned());
    }
    if !pod.status.phase.is_empty() {
        facts.insert(format!("condition phase={}", pod.status.phase));
    }
    facts
}
