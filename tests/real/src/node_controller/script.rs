//! The script of events that both controllers are run through.
//!
//! Rule: every action is the script's own and the same for both; between phases the script waits
//! until nothing changes any more, so that every change falls into its phase. Periods are shortened
//! by flags; those without a flag (the pod garbage collector's) are waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver_client::ApiClient;
use node_testkit::bed::Bed;
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind};
use ports::{ClusterApi, ClusterApiError};
use serde_json::{Value, json};

use super::cluster::{ControllerUnderTest, TestCluster};
use super::hollow::{HollowNodePool, NewNode, now};
use super::recorder::{ChangeRecorder, RecordedChange};
use crate::metric_families::{ScrapedFamily, families};

/// The heartbeat interval of hollow nodes.
const HEARTBEAT: Duration = Duration::from_secs(1);
const ZONES: [(&str, usize); 3] = [("a", 4), ("b", 8), ("c", 3)];

/// The flags of both controllers.
pub fn flags() -> Vec<String> {
    [
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=6s",
        "--node-startup-grace-period=8s",
        // Not 1: at exactly that rate the reference stays at "never" once it was there, since its
        // limiter that never admits anything reports a rate of one per second.
        "--node-eviction-rate=0.9",
        "--secondary-node-eviction-rate=0.5",
        "--large-cluster-size-threshold=6",
        "--unhealthy-zone-threshold=0.55",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
        "--node-cidr-mask-size=24",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--terminated-pod-gc-threshold=3",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--v=2",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// An action of the script.
#[derive(Debug, Clone)]
enum ScriptAction {
    Silence(&'static [&'static str]),
    Speak(&'static [&'static str]),
    Post(&'static str, &'static [(&'static str, &'static str)]),
    Cordon(&'static str, bool),
    /// Key, value, effect.
    Taint(&'static str, [&'static str; 3]),
    Untaint(&'static str, &'static str),
    /// Recreates all of the node's pods.
    Pods(&'static [&'static str]),
    DeleteNode(&'static str),
    /// A node without heartbeats.
    Mute(&'static str),
    /// Terminated pods on a node.
    Ended(&'static str, usize),
    Wait(u64),
}

struct ScriptPhase {
    name: &'static str,
    acts: Vec<ScriptAction>,
    /// Minimum duration in seconds.
    least: u64,
}

/// The changes of a phase.
#[derive(Debug, Clone)]
pub struct PhaseRecord {
    pub name: &'static str,
    pub entries: Vec<RecordedChange>,
    /// The longest time from the last heartbeat to Unknown, of the nodes that stopped in this
    /// phase.
    pub noticed: Option<Duration>,
    /// Whether the order of changes was the controller's choice alone.
    pub ordered: bool,
    /// The nodes that stopped their heartbeats, grouped by those that stopped together.
    pub silenced: Vec<&'static [&'static str]>,
}

impl ScriptPhase {
    /// Where the script itself does several things, their order is the script's; and pods that a
    /// taint evicts at once are deleted in any order.
    fn is_ordered(&self) -> bool {
        let own = |act: &ScriptAction| {
            matches!(
                act,
                ScriptAction::Speak(_) | ScriptAction::Ended(..) | ScriptAction::Taint(..)
            )
        };
        !self.acts.iter().any(own)
    }

    /// The nodes whose heartbeats stop, group by group.
    fn silences(&self) -> Vec<&'static [&'static str]> {
        let groups = self.acts.iter().filter_map(|act| match act {
            ScriptAction::Silence(nodes) => Some(*nodes),
            _ => None,
        });
        groups.collect()
    }

    /// The script's own creation of pods is not compared.
    fn is_preparation(&self) -> bool {
        self.acts.iter().all(|act| matches!(act, ScriptAction::Pods(_)))
    }
}

const ALL: &[&str] =
    &["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "c1", "c2", "c3"];

/// Longer than the grace period plus a monitor period plus a second.
const SILENT: u64 = 10;

fn phases() -> Vec<ScriptPhase> {
    use ScriptAction::{
        Cordon, DeleteNode, Ended, Mute, Pods, Post, Silence, Speak, Taint, Untaint, Wait,
    };
    let phase = |name, acts, least| ScriptPhase { name, acts, least };
    const B_HALF: &[&str] = &["b1", "b2", "b3", "b4", "b5"];
    const B_MOST: &[&str] = &["b1", "b2", "b3", "b4", "b5", "b6", "b7"];
    const ALL_BUT_ONE: &[&str] =
        &["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "c1", "c2"];
    const PRESSED: &[(&str, &str)] = &[
        ("MemoryPressure", "True"),
        ("DiskPressure", "True"),
        ("PIDPressure", "True"),
        ("NetworkUnavailable", "True"),
    ];
    vec![
        phase("", vec![Pods(ALL)], 3),
        phase("one falls silent", vec![Silence(&["a1"])], SILENT),
        phase("it comes back", vec![Speak(&["a1"])], 4),
        phase("one says that it is not ready", vec![Post("a2", &[("Ready", "False")])], 6),
        phase("it falls silent, too", vec![Silence(&["a2"])], SILENT),
        phase("it is well again", vec![Speak(&["a2"])], 4),
        phase("pressure", vec![Post("a3", PRESSED)], 4),
        phase("no pressure", vec![Speak(&["a3"])], 4),
        phase("cordoned", vec![Cordon("a4", true)], 4),
        phase("uncordoned", vec![Cordon("a4", false)], 4),
        phase("a taint by hand", vec![Taint("c1", ["example.com/away", "x", "NoExecute"])], 5),
        phase("it is taken away", vec![Untaint("c1", "example.com/away")], 4),
        phase("a taint that is borne for a while", vec![Taint("c2", SOON), Wait(1)], 1),
        phase("it goes before the pods", vec![Untaint("c2", SOON[0])], 9),
        phase("", vec![Pods(&["a1", "a2", "c1", "c2"])], 3),
        phase(
            "a ready node is called unreachable by hand",
            vec![Taint("c2", ["node.kubernetes.io/unreachable", "", "NoExecute"])],
            6,
        ),
        phase("", vec![Pods(&["c2"])], 3),
        phase("two of a small zone are silent", vec![Silence(&["a1", "a2"])], SILENT + 4),
        phase("and a third: most of it", vec![Silence(&["a3"])], SILENT + 4),
        phase("the small zone is back", vec![Speak(&["a1", "a2", "a3"])], 5),
        // The later ones are queued behind the first, at the slow rate; they are further apart than
        // a heartbeat and a check of the reference, so that it can tell their order.
        phase(
            "most of a large zone is silent",
            vec![Silence(B_HALF), Wait(3), Silence(&["b7"]), Wait(3), Silence(&["b6"])],
            SILENT + 16,
        ),
        phase("the large zone is back", vec![Speak(B_MOST)], 5),
        phase("", vec![Pods(ALL)], 3),
        phase("a zone goes dark", vec![Silence(&["c1", "c2", "c3"])], SILENT + 6),
        phase("the dark zone is back", vec![Speak(&["c1", "c2", "c3"])], 5),
        phase("", vec![Pods(&["c1", "c2", "c3"])], 3),
        phase("all but one are silent", vec![Silence(ALL_BUT_ONE)], SILENT + 18),
        phase("the last one: all zones are dark", vec![Silence(&["c3"])], SILENT + 4),
        phase("all are back", vec![Speak(ALL)], SILENT + 2),
        phase("one never speaks", vec![Mute("mute")], SILENT + 4),
        phase("it is deleted", vec![DeleteNode("mute")], 4),
        phase("", vec![Pods(&["a1", "b8", "c3"])], 3),
        phase("silent before the clean-up", vec![Silence(&["a1"])], SILENT + 4),
        phase(
            "clean-up",
            vec![
                Taint("a1", ["node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"]),
                DeleteNode("c3"),
                Ended("b8", 5),
            ],
            95,
        ),
    ]
}

/// Pods tolerate it as they tolerate a lost node.
const SOON: [&str; 3] = ["example.com/soon", "", "NoExecute"];

/// Runs the whole script against one controller; returns its changes and its metrics.
///
/// # Errors
/// When a part fails, or the API server rejects the script's own actions.
pub async fn run(
    bed: &Bed,
    subject: &ControllerUnderTest,
) -> Result<(Vec<PhaseRecord>, BTreeMap<String, ScrapedFamily>)> {
    let cluster = TestCluster::start(bed)?;
    let hollow = HollowNodePool::new(cluster.client.clone(), HEARTBEAT);
    let recorder = ChangeRecorder::start(&cluster.client);
    let beating = tokio::spawn(hollow.clone().heartbeat());
    let (serving, port) = cluster.serving(subject)?;
    let mut controller = cluster.controller(bed, subject, &[flags(), serving].concat())?;
    let mut records = Vec::new();
    let forms = ZONES.iter().flat_map(|(zone, count)| {
        (1..=*count).map(move |number| NewNode::in_zone(&format!("{zone}{number}"), zone))
    });
    hollow.register(forms.collect()).await?;
    let (quiet, most) = (Duration::from_secs(4), Duration::from_secs(150));
    let entries = recorder.take_changes(Duration::from_secs(20), quiet, most).await;
    let (noticed, silenced) = (None, Vec::new());
    records.push(PhaseRecord { name: "nodes come", entries, noticed, ordered: false, silenced });
    let stage = ScriptRun { client: cluster.client.clone(), hollow };
    for phase in phases() {
        eprintln!("{}: {}", subject.name(), phase.name);
        let mut silenced = BTreeMap::new();
        for act in &phase.acts {
            silenced.extend(stage.act(act).await.with_context(|| format!("{act:?}"))?);
        }
        let entries = recorder.take_changes(Duration::from_secs(phase.least), quiet, most).await;
        let noticed = silenced.iter().filter_map(|(node, last)| {
            let unknown = entries.iter().find(|entry| {
                entry.node == *node && entry.what.starts_with("+condition Ready=Unknown")
            })?;
            Some(unknown.at.duration_since(*last))
        });
        if !phase.is_preparation() {
            records.push(PhaseRecord {
                name: phase.name,
                noticed: noticed.max(),
                ordered: phase.is_ordered(),
                silenced: phase.silences(),
                entries,
            });
        }
        anyhow::ensure!(controller.is_alive()?, "{} has ended", subject.name());
    }
    beating.abort();
    let metrics = families(&cluster.metrics(port)?)?;
    controller.stop();
    Ok((records, metrics))
}

struct ScriptRun {
    client: ApiClient,
    hollow: HollowNodePool,
}

impl ScriptRun {
    /// Performs it; returns the nodes that stopped, with the time of each one's last heartbeat.
    async fn act(&self, act: &ScriptAction) -> Result<BTreeMap<String, tokio::time::Instant>> {
        match act {
            ScriptAction::Silence(nodes) => return Ok(self.hollow.stop_heartbeats(nodes)),
            ScriptAction::Speak(nodes) => self.hollow.resume_heartbeats(nodes).await?,
            ScriptAction::Post(node, conditions) => self.hollow.post(node, conditions).await?,
            ScriptAction::Cordon(node, on) => {
                self.merge(node, &json!({"spec": {"unschedulable": on}})).await?;
            }
            ScriptAction::Taint(node, [key, value, effect]) => {
                let taint = json!({"key": key, "value": value, "effect": effect,
                    "timeAdded": now().to_seconds_text()});
                self.taints(node, |taints| taints.push(taint.clone())).await?;
            }
            ScriptAction::Untaint(node, key) => {
                self.taints(node, |taints| taints.retain(|it| it["key"] != *key)).await?;
            }
            ScriptAction::Pods(nodes) => {
                for node in *nodes {
                    self.pods(node).await?;
                }
            }
            ScriptAction::DeleteNode(name) => {
                self.hollow.stop_heartbeats(&[name]);
                self.client.delete(&ObjectPath::node(name), Deletion::default()).await?;
            }
            ScriptAction::Mute(name) => {
                let form = NewNode { speaks: false, ..NewNode::in_zone(name, "a") };
                self.hollow.register(vec![form]).await?;
            }
            ScriptAction::Ended(node, count) => {
                for number in 0..*count {
                    self.pod(&format!("ended{number}"), node, None).await?;
                    let name = format!("ended{number}-{node}");
                    self.status(&name, &json!({"phase": "Succeeded"})).await?;
                    // Their age counts in whole seconds.
                    tokio::time::sleep(Duration::from_millis(1100)).await;
                }
            }
            ScriptAction::Wait(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
        }
        Ok(BTreeMap::new())
    }

    async fn merge(&self, node: &str, body: &Value) -> Result<(), ClusterApiError> {
        let body = body.to_string().into_bytes();
        let patch = Patch { kind: PatchKind::Merge, subresource: None, body };
        self.client.patch(&ObjectPath::node(node), patch).await.map(drop)
    }

    /// Changes the taints with the resource version as precondition, so as not to overwrite a
    /// concurrent change.
    async fn taints(&self, node: &str, change: impl Fn(&mut Vec<Value>)) -> Result<()> {
        loop {
            let stored = self.client.read(&ObjectPath::node(node)).await?;
            let object: Value = serde_json::from_slice(&stored.json)?;
            let mut taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
            change(&mut taints);
            let body = json!({
                "metadata": {"resourceVersion": stored.resource_version},
                "spec": {"taints": taints},
            });
            match self.merge(node, &body).await {
                Err(ClusterApiError::Conflict { .. }) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Three pods: one tolerates a lost node forever, one for two seconds, one not at all.
    async fn pods(&self, node: &str) -> Result<()> {
        for (role, bears) in [("patient", None), ("quick", Some(2)), ("zero", Some(0))] {
            let path = ObjectPath::pod("default", &format!("{role}-{node}"));
            let at_once = Deletion { grace_seconds: Some(0), ..Deletion::default() };
            match self.client.delete(&path, at_once).await {
                Ok(()) | Err(ClusterApiError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            self.pod(role, node, Some(bears)).await?;
            let time = now().to_seconds_text();
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
            let name = format!("{role}-{node}");
            self.status(&name, &json!({"phase": "Running", "conditions": [ready]})).await?;
        }
        Ok(())
    }

    async fn pod(&self, role: &str, node: &str, bears: Option<Option<i64>>) -> Result<()> {
        let lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
        let tolerations: Vec<Value> = lost
            .into_iter()
            .chain([SOON[0]])
            .filter(|_| bears.is_some())
            .map(|key| {
                let mut toleration =
                    json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
                if let Some(Some(seconds)) = bears {
                    // Longer for the taint by hand, so that it can go before the pod does.
                    let more = if key == SOON[0] { 6 } else { 0 };
                    toleration["tolerationSeconds"] = json!(seconds + more);
                }
                toleration
            })
            .collect();
        let name = format!("{role}-{node}");
        let body = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": node, "tolerations": tolerations,
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "none"}],
            },
        });
        let path = ObjectPath::pod("default", &name);
        self.client.create(&path, body.to_string().into_bytes()).await?;
        Ok(())
    }

    async fn status(&self, pod: &str, status: &Value) -> Result<()> {
        let body = json!({"status": status}).to_string().into_bytes();
        let patch =
            Patch { kind: PatchKind::StrategicMerge, subresource: Some("status".into()), body };
        self.client.patch(&ObjectPath::pod("default", pod), patch).await?;
        Ok(())
    }
}
