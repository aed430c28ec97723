//! A cluster with hollow nodes and one or more controllers, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use cluster_fake::{ApiVerb, FakeClient, FakeCluster, HollowNodes, LoggedRequest};
use node_controller::{
    ApiClients, ControllerConfig, LeaderConfig, NodeController, SystemEnvironment,
};
use ports::cluster_api::ObjectPath;
use ports::cluster_objects::Node;
use ports::{ApiTime, CloudProvider};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub(crate) const NOON: &str = "2026-01-02T12:00:00Z";

/// The machine's wall clock, with any offset.
pub(crate) struct FakeMachine {
    cluster: FakeCluster,
    pub(crate) off_seconds: std::sync::atomic::AtomicI64,
    pub(crate) slept_seconds: std::sync::atomic::AtomicU64,
    numbers: std::sync::atomic::AtomicU64,
    began: Instant,
}

impl FakeMachine {
    pub(crate) fn new(cluster: &FakeCluster) -> Arc<Self> {
        Arc::new(Self {
            cluster: cluster.clone(),
            off_seconds: 0.into(),
            slept_seconds: 0.into(),
            numbers: 7.into(),
            began: Instant::now(),
        })
    }
}

impl SystemEnvironment for FakeMachine {
    fn wall(&self) -> ApiTime {
        let off = self.off_seconds.load(std::sync::atomic::Ordering::Relaxed);
        ApiTime::from_nanos(self.cluster.wall().nanos() + off * 1_000_000_000)
    }

    /// Independent of the wall clock.
    fn since_boot(&self) -> Duration {
        Duration::from_secs(1_000_000)
            + self.began.elapsed()
            + Duration::from_secs(self.slept_seconds.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        let old = self.numbers.load(std::sync::atomic::Ordering::Relaxed);
        let new =
            old.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.numbers.store(new, std::sync::atomic::Ordering::Relaxed);
        new >> 33
    }
}

/// A running controller.
pub(crate) struct RunningController {
    pub(crate) controller: NodeController,
    pub(crate) client: FakeClient,
    pub(crate) machine: Arc<FakeMachine>,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RunningController {
    /// Stops it as SIGTERM would.
    pub(crate) async fn end(mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        self.task.await.expect("ends without a panic");
    }

    /// Ends it as SIGKILL would.
    pub(crate) fn kill(self) {
        self.task.abort();
    }

    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let families = self.controller.metrics();
        let family = families.iter().find(|family| family.name == name)?;
        let fits = |sample: &&node_controller::Sample| {
            labels.iter().all(|(key, value)| {
                sample.labels.iter().any(|(known, it)| known == key && it == value)
            })
        };
        family.samples.iter().find(fits).map(|sample| sample.value)
    }
}

pub(crate) struct Stage {
    pub(crate) cluster: FakeCluster,
    pub(crate) nodes: HollowNodes,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let cluster = FakeCluster::new(ApiTime::parse(NOON).expect("a time"));
        let nodes = HollowNodes::start(&cluster);
        Self { cluster, nodes }
    }

    /// A cluster with this many nodes `node-0`… in one zone.
    pub(crate) fn with_nodes(count: usize) -> Self {
        let stage = Self::new();
        for number in 0..count {
            stage.nodes.join(&format!("node-{number}"), &json!({}));
        }
        stage
    }

    pub(crate) fn start(&self, config: ControllerConfig) -> RunningController {
        self.start_as("one", config, None)
    }

    pub(crate) fn start_as(
        &self,
        name: &str,
        config: ControllerConfig,
        cloud: Option<Arc<dyn CloudProvider>>,
    ) -> RunningController {
        let client = self.cluster.client(name);
        let clients = ApiClients::one(Arc::new(client.clone()));
        self.start_with(client, clients, config, cloud)
    }

    /// Starts a controller with these clients.
    pub(crate) fn start_with(
        &self,
        client: FakeClient,
        clients: ApiClients,
        config: ControllerConfig,
        cloud: Option<Arc<dyn CloudProvider>>,
    ) -> RunningController {
        launch(client, clients, config, cloud, FakeMachine::new(&self.cluster))
    }

    /// Starts one on a machine whose wall clock is this many seconds off.
    pub(crate) fn start_off(&self, seconds: i64, config: ControllerConfig) -> RunningController {
        let client = self.cluster.client("one");
        let clients = ApiClients::one(Arc::new(client.clone()));
        let machine = FakeMachine::new(&self.cluster);
        machine.off_seconds.store(seconds, std::sync::atomic::Ordering::Relaxed);
        launch(client, clients, config, None, machine)
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        self.cluster.node(name).expect("the node is there")
    }

    pub(crate) fn ready(&self, name: &str) -> String {
        let node = self.node(name);
        let ready = node.status.conditions.iter().find(|it| it.kind == "Ready");
        ready.map(|it| it.status.clone()).unwrap_or_default()
    }

    /// Taints as `key:effect`, without the usual prefix, sorted.
    pub(crate) fn taints(&self, name: &str) -> Vec<String> {
        let mut taints: Vec<String> = self
            .node(name)
            .spec
            .taints
            .iter()
            .map(|taint| {
                let key = taint.key.trim_start_matches("node.kubernetes.io/");
                format!("{key}:{}", taint.effect)
            })
            .collect();
        taints.sort();
        taints
    }

    /// A running, ready pod on a node.
    pub(crate) fn pod(&self, name: &str, node: &str, tolerations: &Value) -> String {
        let at = self.cluster.wall().to_seconds_text();
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        self.cluster.put(
            &ObjectPath::pod("default", name),
            json!({
                "metadata": {"generation": 3},
                "spec": {"nodeName": node, "tolerations": tolerations},
                "status": {
                    "phase": "Running",
                    "conditions": [condition("PodScheduled"), condition("Ready")],
                },
            }),
        )
    }

    pub(crate) fn has_pod(&self, name: &str) -> bool {
        self.cluster.pod("default", name).is_some()
    }

    /// Whether a pod exists and has no deletion timestamp.
    pub(crate) fn is_kept(&self, name: &str) -> bool {
        let pod = self.cluster.pod("default", name);
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    pub(crate) fn pod_condition(&self, name: &str, kind: &str) -> Option<(String, String)> {
        let pod = self.cluster.pod("default", name)?;
        let found = pod.status.conditions.into_iter().find(|it| it.kind == kind)?;
        Some((found.status, found.reason))
    }

    /// Writes to this kind of object.
    pub(crate) fn writes(&self, plural: &str) -> Vec<LoggedRequest> {
        let log = self.cluster.log().into_iter();
        log.filter(|it| it.verb != ApiVerb::Read && it.path.resource.plural == plural).collect()
    }

    /// Deletions of pods that succeeded.
    pub(crate) fn deletions(&self) -> Vec<LoggedRequest> {
        let writes = self.writes("pods").into_iter();
        writes.filter(|it| it.verb == ApiVerb::Delete && it.succeeded).collect()
    }

    /// Waits until the condition holds; returns the seconds that took.
    pub(crate) async fn until(&self, what: &str, limit: u64, holds: impl Fn() -> bool) -> u64 {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(limit), "{what}: not within {limit} s");
            sleep(Duration::from_millis(100)).await;
        }
        began.elapsed().as_secs()
    }
}

fn launch(
    client: FakeClient,
    clients: ApiClients,
    config: ControllerConfig,
    cloud: Option<Arc<dyn CloudProvider>>,
    machine: Arc<FakeMachine>,
) -> RunningController {
    let controller =
        NodeController::new(config, clients, cloud, machine.clone()).expect("a sound config");
    let (end, ended) = oneshot::channel::<()>();
    let runs = controller.clone();
    let task = tokio::spawn(async move {
        runs.run(async {
            let _ = ended.await;
        })
        .await;
    });
    RunningController { controller, client, machine, end: Some(end), task }
}

pub(crate) async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

/// Tolerates the "lost" taints for this long; for ever without a number.
pub(crate) fn bears(seconds: Option<i64>) -> Value {
    let mut all = json!({"operator": "Exists", "effect": "NoExecute"});
    if let Some(seconds) = seconds {
        all["tolerationSeconds"] = json!(seconds);
    }
    json!([all])
}

pub(crate) fn leader(identity: &str) -> ControllerConfig {
    ControllerConfig { leader: Some(LeaderConfig::new(identity)), ..ControllerConfig::default() }
}
