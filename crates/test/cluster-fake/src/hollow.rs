//! Hollow nodes: nodes with a lease and a status and no pods.
//!
//! Rule: they behave as a kubelet does. The lease is renewed every ten seconds; the status is
//! written when it differs from the one in the API server. A node that is alive finishes the
//! deletion of its pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::ApiTime;
use ports::cluster_api::{ObjectPath, Resource};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::FakeCluster;

const LEASES: &str = "kube-node-lease";
/// Seconds between two renewals of one node.
const PERIOD: u64 = 10;

#[derive(Clone, Debug)]
struct HollowNode {
    alive: bool,
    ready: bool,
    /// How far its clock is off, in seconds.
    skew: i64,
}

/// Simulated nodes. Dropping the value stops all of them.
#[derive(Debug)]
pub struct HollowNodes {
    cluster: FakeCluster,
    nodes: Arc<Mutex<BTreeMap<String, HollowNode>>>,
    _tasks: JoinSet<()>,
}

fn lock(
    nodes: &Mutex<BTreeMap<String, HollowNode>>,
) -> MutexGuard<'_, BTreeMap<String, HollowNode>> {
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HollowNodes {
    /// Starts without nodes. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(cluster: &FakeCluster) -> Self {
        let nodes: Arc<Mutex<BTreeMap<String, HollowNode>>> = Arc::default();
        let mut tasks = JoinSet::new();
        let (beat_nodes, beat_cluster) = (nodes.clone(), cluster.clone());
        tasks.spawn(async move {
            let mut second = 0_u64;
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                second += 1;
                let turn: Vec<(String, HollowNode)> = (0_u64..)
                    .zip(lock(&beat_nodes).iter())
                    .filter(|(number, (_, node))| node.alive && number % PERIOD == second % PERIOD)
                    .map(|(_, (name, node))| (name.clone(), node.clone()))
                    .collect();
                for (name, node) in turn {
                    heartbeat(&beat_cluster, &name, &node);
                }
            }
        });
        Self { cluster: cluster.clone(), nodes, _tasks: tasks }
    }

    /// Adds a node with these labels; it sends its first heartbeat at once.
    pub fn join(&self, name: &str, labels: &Value) {
        self.cluster.put(
            &ObjectPath::node(name),
            json!({"metadata": {"labels": labels}, "spec": {}, "status": {}}),
        );
        let node = HollowNode { alive: true, ready: true, skew: 0 };
        lock(&self.nodes).insert(name.to_owned(), node.clone());
        heartbeat(&self.cluster, name, &node);
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut HollowNode)) -> Option<HollowNode> {
        let mut nodes = lock(&self.nodes);
        let node = nodes.get_mut(name)?;
        change(node);
        Some(node.clone())
    }

    /// Sets how many seconds the node's clock is off from now on.
    pub fn skew(&self, name: &str, seconds: i64) {
        self.change(name, |node| node.skew = seconds);
    }

    /// Stops the node's heartbeats.
    pub fn stop_heartbeats(&self, name: &str) {
        self.change(name, |node| node.alive = false);
    }

    /// Resumes the node's heartbeats, with one at once.
    pub fn resume_heartbeats(&self, name: &str) {
        if let Some(node) = self.change(name, |node| node.alive = true) {
            heartbeat(&self.cluster, name, &node);
        }
    }

    /// Sets whether the node reports itself ready.
    pub fn set_ready(&self, name: &str, ready: bool) {
        if let Some(node) = self.change(name, |node| node.ready = ready) {
            heartbeat(&self.cluster, name, &node);
        }
    }
}

fn heartbeat(cluster: &FakeCluster, name: &str, node: &HollowNode) {
    let wall = cluster.wall().nanos().saturating_add(node.skew.saturating_mul(1_000_000_000));
    let wall = ApiTime::from_nanos(wall);
    let lease = ObjectPath::lease(LEASES, name);
    let spec = json!({
        "holderIdentity": name,
        "leaseDurationSeconds": 40,
        "renewTime": wall.to_micros_text(),
    });
    cluster.put(&lease, json!({"spec": spec}));
    let status = if node.ready { "True" } else { "False" };
    let path = ObjectPath::node(name);
    let Some(object) = cluster.get(&path) else { return };
    let ready = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = ready.and_then(|list| list.iter().find(|it| it["type"] == "Ready"));
    if ready.is_none_or(|ready| ready["status"] != status) {
        let at = wall.to_seconds_text();
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastHeartbeatTime": at, "lastTransitionTime": at});
        let conditions = json!([
            condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"),
            condition("PIDPressure", "False"),
            condition("Ready", status),
        ]);
        cluster.edit(&path, |object| object["status"]["conditions"] = conditions);
    }
    finish_pod_deletions(cluster, name);
}

/// Finishes the deletion of pods, as a live kubelet does.
fn finish_pod_deletions(cluster: &FakeCluster, node: &str) {
    for object in cluster.list(Resource::PODS).0 {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or("").to_owned();
        let leaving = object.pointer("/metadata/deletionTimestamp").is_some();
        if leaving && text("/spec/nodeName") == node {
            let path = ObjectPath::pod(&text("/metadata/namespace"), &text("/metadata/name"));
            cluster.remove(&path);
        }
    }
}
