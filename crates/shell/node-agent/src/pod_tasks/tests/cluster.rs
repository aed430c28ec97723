//! The agent as a node of a cluster: registration, status, Lease, pod CIDR, events.

use super::bench::{AgentBench, START};
use crate::cluster_node::{ClusterDependencies, ClusterEventQueue, ClusterSettings};
use cluster_fake::{ApiVerb, FakeClient, FakeCluster};
use node_status::object::NodeSettings;
use ports::cluster_api::{ObjectPath, Resource};
use ports::{ApiTime, MachineFacts, MachineInfo, PortFuture};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NODE: &str = "n";

/// A machine with given facts.
struct FixedMachine(MachineFacts);

impl MachineInfo for FixedMachine {
    fn read(&self) -> PortFuture<'_, Option<MachineFacts>> {
        Box::pin(async { Some(self.0.clone()) })
    }
}

/// A cluster, this node's clients of it, and its configuration.
pub(super) struct ClusterFixture {
    pub(super) cluster: FakeCluster,
    api: FakeClient,
    heartbeats: FakeClient,
    machine: MachineFacts,
    settings: ClusterSettings,
}

impl ClusterFixture {
    fn new() -> Self {
        let cluster = FakeCluster::new(ApiTime::from_nanos(START));
        Self {
            api: cluster.client("kubelet"),
            heartbeats: cluster.client("kubelet-heartbeats"),
            cluster,
            machine: MachineFacts {
                cpus: 2,
                memory: 4 << 30,
                machine_id: "machine-1".to_owned(),
                system_uuid: "uuid-1".to_owned(),
                boot_id: "boot-1".to_owned(),
                kernel_version: "6.1".to_owned(),
                addresses: [[10, 0, 0, 5].into()].into(),
                default_v4: Some([10, 0, 0, 5].into()),
                ..MachineFacts::default()
            },
            settings: ClusterSettings {
                node: NodeSettings {
                    node_name: NODE.to_owned(),
                    hostname: NODE.to_owned(),
                    architecture: "amd64".to_owned(),
                    kubelet_version: "v1.36.3".to_owned(),
                    max_pods: 110,
                    max_images: 50,
                    port: 10_250,
                    ..NodeSettings::default()
                },
                registers: true,
                node_ips: Vec::new(),
                reservation: [].into(),
                declared_features: Vec::new(),
                update_frequency: Duration::from_secs(10),
                report_frequency: Duration::from_secs(300),
                lease_duration: Duration::from_secs(40),
                resets_devices: true,
            },
        }
    }

    pub(super) fn parts(&self) -> ClusterDependencies {
        ClusterDependencies {
            api: Arc::new(self.api.clone()),
            heartbeats: Arc::new(self.heartbeats.clone()),
            machine: Arc::new(FixedMachine(self.machine.clone())),
            settings: self.settings.clone(),
            events: Arc::new(ClusterEventQueue::new(NODE)),
            event_api: Arc::new(self.cluster.client("kubelet-events")),
        }
    }

    fn node(&self) -> Value {
        self.cluster.get(&ObjectPath::node(NODE)).unwrap_or_default()
    }

    fn condition(&self, kind: &str) -> Value {
        let node = self.node();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|found| found["type"] == kind).unwrap_or_default()
    }

    /// Seconds since the Lease was renewed.
    fn lease_age(&self) -> Option<i64> {
        let lease = self.cluster.lease("kube-node-lease", NODE)?;
        let age = self.cluster.wall().nanos() - lease.spec.renew_time?.nanos();
        Some(age / 1_000_000_000)
    }

    /// Requests other than renewals of the Lease.
    fn requests(&self) -> Vec<(ApiVerb, String)> {
        let log = self.cluster.log();
        let others = log.into_iter().filter(|entry| entry.path.resource != Resource::LEASES);
        others.map(|entry| (entry.verb, entry.path.name)).collect()
    }
}

fn cluster_fixture(change: impl FnOnce(&mut ClusterFixture)) -> AgentBench {
    let mut bench = AgentBench::new();
    let mut cluster = ClusterFixture::new();
    change(&mut cluster);
    bench.cluster = Some(cluster);
    bench
}

fn cluster(bench: &AgentBench) -> &ClusterFixture {
    bench.cluster.as_ref().unwrap()
}

fn is_ready(bench: &AgentBench) -> bool {
    cluster(bench).condition("Ready")["status"] == "True"
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_becomes_ready_and_is_quiet_but_for_its_lease() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    let took = bench.until("the node is ready", is_ready).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    seconds(15).await;
    let cluster_fixture = cluster(&bench);
    let node = cluster_fixture.node();
    assert_eq!(node["status"]["capacity"]["cpu"], "2");
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.3");
    let kinds: Vec<&str> = node["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|condition| condition["type"].as_str())
        .collect();
    assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    let reasons = cluster_fixture.cluster.reasons(NODE);
    let expected = [
        "Starting",
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
        "NodeReady",
    ];
    for expected in expected {
        assert!(reasons.iter().any(|reason| reason == expected), "{expected}: {reasons:?}");
    }
    let before = cluster_fixture.requests().len();
    for _ in 0..12 {
        seconds(10).await;
        assert!(
            cluster_fixture.lease_age().is_some_and(|age| age <= 11),
            "{:?}",
            cluster_fixture.lease_age()
        );
    }
    assert_eq!(cluster_fixture.requests().len(), before, "{:?}", cluster_fixture.requests());
    // A report is due by now whatever its offset.
    seconds(450).await;
    let patches = cluster_fixture.requests()[before..].to_vec();
    assert!((1..=3).contains(&patches.len()), "{patches:?}");
    assert!(patches.iter().all(|(verb, _)| *verb == ApiVerb::Patch), "{patches:?}");
    assert!(cluster_fixture.lease_age().is_some_and(|age| age <= 11));
}

#[tokio::test(start_paused = true)]
async fn an_existing_node_keeps_what_others_set() {
    let mut bench = cluster_fixture(|cluster_fixture| {
        cluster_fixture.cluster.put(
            &ObjectPath::node(NODE),
            json!({
                "metadata": { "labels": { "team": "a", "kubernetes.io/hostname": "old" } },
                "spec": { "taints": [{ "key": "k", "effect": "NoExecute" }], "unschedulable": true },
                "status": {
                    "nodeInfo": { "machineID": "machine-1", "systemUUID": "uuid-1" },
                    "conditions": [{ "type": "Other", "status": "True" }],
                },
            }),
        );
    });
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    let node = cluster(&bench).node();
    assert_eq!(node["metadata"]["labels"]["team"], "a");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n");
    assert_eq!(node["spec"]["taints"][0]["key"], "k");
    assert_eq!(cluster(&bench).condition("Other")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_another_machine_is_left_alone_until_that_machine_is_silent() {
    let mut bench = cluster_fixture(|cluster_fixture| {
        let info = json!({ "machineID": "machine-2", "systemUUID": "uuid-2", "bootID": "x" });
        cluster_fixture
            .cluster
            .put(&ObjectPath::node(NODE), json!({ "spec": {}, "status": { "nodeInfo": info } }));
        let renewed = cluster_fixture.cluster.wall().to_micros_text();
        cluster_fixture.cluster.put(
            &ObjectPath::lease("kube-node-lease", NODE),
            json!({ "spec": {
                "holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": renewed,
            }}),
        );
    });
    bench.begin();
    seconds(30).await;
    let cluster_fixture = cluster(&bench);
    assert_eq!(cluster_fixture.node()["status"]["nodeInfo"]["machineID"], "machine-2");
    assert_eq!(cluster_fixture.lease_age(), Some(30), "the other machine's Lease was renewed");
    bench.until("the name is free", is_ready).await;
    assert_eq!(cluster(&bench).node()["status"]["nodeInfo"]["machineID"], "machine-1");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_comes_late_or_goes_costs_nothing_but_the_time() {
    let mut bench = cluster_fixture(|cluster_fixture| {
        cluster_fixture.api.faults.turn(|faults| faults.away = true);
        cluster_fixture.heartbeats.faults.turn(|faults| faults.away = true);
    });
    bench.begin();
    seconds(60).await;
    let reset = |cluster_fixture: &ClusterFixture| {
        cluster_fixture.api.faults.reset();
        cluster_fixture.heartbeats.faults.reset();
    };
    reset(cluster(&bench));
    let took = bench.until("the node is ready", is_ready).await;
    assert!(took < Duration::from_secs(8), "{took:?}");
    seconds(20).await;
    for hangs in [false, true] {
        let cluster_fixture = cluster(&bench);
        for client in [&cluster_fixture.api, &cluster_fixture.heartbeats] {
            client.faults.turn(|faults| (faults.away, faults.hangs) = (!hangs, hangs));
        }
        seconds(600).await;
        reset(cluster(&bench));
        let fresh = |bench: &AgentBench| cluster(bench).lease_age().is_some_and(|age| age < 2);
        let took = bench.until("the Lease is renewed", fresh).await;
        assert!(took <= Duration::from_secs(10), "hangs {hangs}: {took:?}");
    }
    assert!(is_ready(&bench));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_statuses_are_refused() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    seconds(12).await;
    cluster(&bench).api.faults.turn(|faults| faults.hangs = true);
    bench.runtime.set_network_down(true);
    for _ in 0..30 {
        seconds(5).await;
        let age = cluster(&bench).lease_age();
        assert!(age.is_some_and(|age| age <= 11), "{age:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_goes_is_in_the_status_within_the_runtimes_next_look() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    bench.runtime.set_network_down(true);
    bench.until("the node is not ready", |bench| !is_ready(bench)).await;
    let ready = cluster(&bench).condition("Ready");
    assert_eq!(ready["reason"], "KubeletNotReady");
    let message = ready["message"].as_str().unwrap();
    assert!(
        message.starts_with("container runtime network not ready: NetworkReady=false"),
        "{message}"
    );
    bench.runtime.set_network_down(false);
    bench.until("the node is ready again", is_ready).await;
    seconds(5).await;
    let reasons = cluster(&bench).cluster.reasons(NODE);
    assert!(reasons.iter().any(|reason| reason == "NodeNotReady"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_is_not_registered_again_but_written_when_it_is_back() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    let path = ObjectPath::node(NODE);
    cluster(&bench).cluster.remove(&path);
    seconds(120).await;
    assert_eq!(cluster(&bench).node(), Value::Null);
    cluster(&bench).cluster.put(&path, json!({ "spec": {}, "status": {} }));
    bench.until("its status is written", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_register_waits_for_its_object() {
    let mut bench = cluster_fixture(|cluster_fixture| cluster_fixture.settings.registers = false);
    bench.begin();
    seconds(60).await;
    assert_eq!(cluster(&bench).node(), Value::Null);
    assert_eq!(cluster(&bench).lease_age(), None);
    let path = ObjectPath::node(NODE);
    cluster(&bench).cluster.put(&path, json!({ "spec": {}, "status": {} }));
    let took = bench.until("its status is written", is_ready).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    bench.until("it has a Lease", |bench| cluster(bench).lease_age().is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn the_range_of_pod_addresses_reaches_the_runtime() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    cluster(&bench).cluster.edit(&ObjectPath::node(NODE), |node| {
        node["spec"]["podCIDRs"] = json!(["10.1.0.0/24", "fd00::/64"]);
    });
    let passed = |bench: &AgentBench| bench.calls_of("set_pod_cidr");
    bench.until("the runtime has it", |bench| !passed(bench).is_empty()).await;
    seconds(30).await;
    assert_eq!(passed(&bench), ["set_pod_cidr 10.1.0.0/24,fd00::/64"]);
}

#[tokio::test(start_paused = true)]
async fn a_cordon_is_an_event() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    cluster(&bench).cluster.edit(&ObjectPath::node(NODE), |node| {
        node["spec"]["unschedulable"] = json!(true);
    });
    bench
        .until("the event is sent", |bench| {
            let reasons = cluster(bench).cluster.reasons(NODE);
            reasons.iter().any(|reason| reason == "NodeNotSchedulable")
        })
        .await;
}
