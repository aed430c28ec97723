//! The load under which both controllers are measured: live nodes, a burst of nodes that stop their
//! heartbeats, and one node whose detection is timed.
//!
//! Rule: the same for both, on the same control plane, one after the other; all nodes are Ready
//! before each begins.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apiserver_client::ApiClient;
use node_testkit::bed::Bed;
use node_testkit::start::RunningPart;
use ports::cluster_api::{ObjectPath, ObjectSelector, Patch, PatchKind};
use ports::cluster_objects::Node;
use ports::{ClusterApi, FeedEvent};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::cluster::{ControllerUnderTest, TestCluster};
use super::hollow::HollowNodePool;
use super::measure::{cpu_time, memory};
use crate::promises::{BenchRow, Promise};

/// The pause until everything is listed and quiet.
const SETTLE: Duration = Duration::from_secs(45);
/// The timeout for all writes that new nodes need.
const SETTLED_WITHIN: Duration = Duration::from_mins(5);
/// The interval over which CPU time is measured while there are only heartbeats.
const STEADY: Duration = Duration::from_secs(90);
/// One in this many nodes stops its heartbeats in the burst.
const BURST_SHARE: usize = 20;
/// By default a node may miss heartbeats for 50 s; the writes about hundreds of nodes are then rate
/// limited.
const NOTICE_WITHIN: Duration = Duration::from_mins(6);

/// The allowed fraction of the reference's memory and CPU time.
const MOST_MEMORY: f64 = 1.0 / 6.0;
const MOST_CPU: f64 = 1.0 / 5.0;

/// The measurements.
#[derive(Debug, Clone, Copy, Default)]
pub struct ControllerBenchResult {
    pub pss_kib: f64,
    pub private_dirty_kib: f64,
    pub start_cpu_ms: f64,
    pub steady_cpu_ms: f64,
    pub burst_cpu_ms: f64,
    pub noticed_s: f64,
}

impl ControllerBenchResult {
    /// The rows of the table, with the promises of SPECIFICATION.md.
    pub fn beside(&self, theirs: &Self) -> Vec<BenchRow> {
        let row = |name: &str, ours, theirs, unit, most| BenchRow {
            name: name.to_owned(),
            ours,
            theirs,
            unit,
            promise: Promise::AtMost(most),
        };
        let memory = |name, ours, theirs| row(name, ours, theirs, "KiB", MOST_MEMORY);
        let cpu = |name, ours, theirs| row(name, ours, theirs, "ms", MOST_CPU);
        vec![
            memory("PSS after the burst", self.pss_kib, theirs.pss_kib),
            memory(
                "Private_Dirty after the burst",
                self.private_dirty_kib,
                theirs.private_dirty_kib,
            ),
            cpu("CPU time, start and first lists", self.start_cpu_ms, theirs.start_cpu_ms),
            cpu("CPU time, heartbeats only, 90 s", self.steady_cpu_ms, theirs.steady_cpu_ms),
            cpu("CPU time, burst: 1 of 20 silent and back", self.burst_cpu_ms, theirs.burst_cpu_ms),
            row(
                "last sign of life to Unknown, slowest",
                self.noticed_s,
                theirs.noticed_s,
                "s",
                1.0,
            ),
        ]
    }
}

/// A set of nodes and their pods.
pub struct HeartbeatLoad {
    client: ApiClient,
    hollow: HollowNodePool,
    zones: usize,
}

impl HeartbeatLoad {
    pub fn new(cluster: &TestCluster, hollow: HollowNodePool, zones: usize) -> Self {
        Self { client: cluster.client.clone(), hollow, zones }
    }

    /// Pods on every node, running and ready, that tolerate a lost node for five minutes.
    ///
    /// # Errors
    /// When the API server rejects one.
    pub async fn make_pods(&self, nodes: usize, each: usize) -> Result<()> {
        let mut tasks = JoinSet::new();
        for number in 0..nodes * each {
            if tasks.len() >= 24 {
                tasks.join_next().await.context("a task")???;
            }
            let client = self.client.clone();
            tasks.spawn(async move { make_pod(&client, number, number % nodes).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Lets a controller without a rate limit do what new nodes need (labels, removal of the first
    /// taint), so that both controllers find a cluster in which nothing is left to do.
    ///
    /// # Errors
    /// When the controller exits.
    pub async fn settle(
        &self,
        bed: &Bed,
        cluster: &TestCluster,
        subject: &ControllerUnderTest,
    ) -> Result<()> {
        eprintln!("settling {} nodes", self.hollow.beating());
        // Missing heartbeats must not matter here: they may begin only later.
        let limit = "--node-monitor-grace-period=1h";
        let flags = ["--kube-api-qps=2000", "--kube-api-burst=4000", limit].map(str::to_owned);
        let mut controller = cluster.controller(bed, subject, &flags)?;
        let began = Instant::now();
        while self.nodes_to_do().await? > 0 {
            ensure!(controller.is_alive()?, "the controller has ended");
            ensure!(began.elapsed() < SETTLED_WITHIN, "the nodes do not settle");
            sleep(Duration::from_secs(2)).await;
        }
        controller.stop();
        Ok(())
    }

    /// How many nodes lack a label or have a taint.
    async fn nodes_to_do(&self) -> Result<usize> {
        let mut feed = self.client.watch_nodes(ObjectSelector::default());
        let mut count = 0;
        loop {
            match feed.next().await {
                FeedEvent::ListBegun => count = 0,
                FeedEvent::Listed(page) => {
                    let to_do = |node: &&Node| {
                        !node.spec.taints.is_empty()
                            || !node.metadata.labels.contains_key("beta.kubernetes.io/os")
                    };
                    count += page.iter().filter(to_do).count();
                }
                FeedEvent::ListEnded => return Ok(count),
                FeedEvent::Interrupted(error) => return Err(error.into()),
                _ => {}
            }
        }
    }

    /// Starts a controller, measures it, stops it.
    ///
    /// # Errors
    /// When it exits, or does not detect the missing heartbeats.
    pub async fn measure(
        &self,
        bed: &Bed,
        cluster: &TestCluster,
        subject: &ControllerUnderTest,
    ) -> Result<ControllerBenchResult> {
        eprintln!("{}: starting beside {} nodes", subject.name(), self.hollow.beating());
        let mut controller = cluster.controller(bed, subject, &[])?;
        let process = controller.process_id();
        sleep(SETTLE).await;
        let started = cpu_time(process)?;
        eprintln!("{}: heartbeats only", subject.name());
        sleep(STEADY).await;
        let steady = cpu_time(process)?;
        eprintln!("{}: burst", subject.name());
        let noticed = self.burst(&mut controller).await?;
        let burst = cpu_time(process)?;
        let memory = memory(process)?;
        controller.stop();
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        Ok(ControllerBenchResult {
            pss_kib: memory.pss as f64,
            private_dirty_kib: memory.private_dirty as f64,
            start_cpu_ms: millis(started),
            steady_cpu_ms: millis(steady.saturating_sub(started)),
            burst_cpu_ms: millis(burst.saturating_sub(steady)),
            noticed_s: noticed.as_secs_f64(),
        })
    }

    /// Some nodes stop their heartbeats, are detected, and resume. Returns the longest time until
    /// detection.
    async fn burst(&self, controller: &mut RunningPart) -> Result<Duration> {
        let count = self.hollow.beating();
        // Not a multiple of the zones, so that all zones have some.
        let step =
            if BURST_SHARE.is_multiple_of(self.zones) { BURST_SHARE + 1 } else { BURST_SHARE };
        let names: Vec<String> = (0..count).step_by(step).map(|it| format!("n{it}")).collect();
        let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
        let last = self.hollow.stop_heartbeats(&nodes);
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        let mut waiting: Vec<&str> = nodes.clone();
        // A look at each every few tenths costs the API server little, and the subject nothing.
        while !waiting.is_empty() {
            ensure!(controller.is_alive()?, "the controller has ended");
            if began.elapsed() > NOTICE_WITHIN {
                bail!("{} of {} silent nodes were not noticed", waiting.len(), nodes.len());
            }
            let mut still = Vec::new();
            for node in waiting {
                if self.is_unknown(node).await? {
                    let last_heartbeat = last.get(node).context("when it was last heard")?;
                    slowest = slowest.max(last_heartbeat.elapsed());
                } else {
                    still.push(node);
                }
            }
            waiting = still;
            sleep(Duration::from_millis(200)).await;
        }
        self.hollow.resume_heartbeats(&nodes).await?;
        sleep(Duration::from_secs(15)).await;
        Ok(slowest)
    }

    async fn is_unknown(&self, node: &str) -> Result<bool> {
        let stored = self.client.read(&ObjectPath::node(node)).await?;
        let object: Value = serde_json::from_slice(&stored.json)?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "Unknown"))
    }
}

/// Creates a minimal pod.
async fn make_pod(client: &ApiClient, number: usize, node: usize) -> Result<()> {
    let name = format!("p{number}");
    let body = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": format!("n{node}"), "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "registry.example/some/image:v1.2.3",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        },
    });
    let path = ObjectPath::pod("default", &name);
    client.create(&path, body.to_string().into_bytes()).await?;
    let ready = json!({"type": "Ready", "status": "True"});
    let body = json!({"status": {"phase": "Running", "conditions": [ready]}});
    let body = body.to_string().into_bytes();
    let patch = Patch { kind: PatchKind::StrategicMerge, subresource: Some("status".into()), body };
    client.patch(&path, patch).await?;
    Ok(())
}
