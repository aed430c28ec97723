//! The agent as a node of a cluster: registration, status, Lease, pod CIDR, events.

use super::bench::{AgentBench, START, pod};
use crate::certificates::CertificateDependencies;
use crate::cluster_node::{ClusterDependencies, ClusterEventQueue, ClusterSettings};
use cluster_fake::{ApiVerb, FakeClient, FakeCluster};
use node_status::object::NodeSettings;
use ports::cluster_api::{ObjectPath, Resource};
use ports::cluster_objects::NodeTaint;
use ports::{ApiTime, MachineFacts, MachineInfo, PortFuture};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const NODE: &str = "n";

/// A machine whose facts the test sets.
#[derive(Clone)]
struct ScriptedMachine(Arc<Mutex<MachineFacts>>);

impl ScriptedMachine {
    fn set_cpus(&self, cpus: i64) {
        self.0.lock().unwrap().cpus = cpus;
    }
}

impl MachineInfo for ScriptedMachine {
    fn read(&self) -> PortFuture<'_, Option<MachineFacts>> {
        let facts = self.0.lock().unwrap().clone();
        Box::pin(async { Some(facts) })
    }
}

/// A cluster, this node's clients of it, and its configuration.
pub(super) struct ClusterFixture {
    pub(super) cluster: FakeCluster,
    pub(super) api: FakeClient,
    heartbeats: FakeClient,
    machine: ScriptedMachine,
    settings: ClusterSettings,
}

impl ClusterFixture {
    fn new() -> Self {
        let cluster = FakeCluster::new(ApiTime::from_nanos(START));
        Self {
            api: cluster.client("kubelet"),
            heartbeats: cluster.client("kubelet-heartbeats"),
            cluster,
            machine: ScriptedMachine(Arc::new(Mutex::new(MachineFacts {
                cpus: 2,
                memory: 4 << 30,
                machine_id: "machine-1".to_owned(),
                system_uuid: "uuid-1".to_owned(),
                boot_id: "boot-1".to_owned(),
                kernel_version: "6.1".to_owned(),
                addresses: [[10, 0, 0, 5].into()].into(),
                default_v4: Some([10, 0, 0, 5].into()),
                ..MachineFacts::default()
            }))),
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
            machine: Arc::new(self.machine.clone()),
            settings: self.settings.clone(),
            events: Arc::new(ClusterEventQueue::new(NODE)),
            event_api: Arc::new(self.cluster.client("kubelet-events")),
            certificates: CertificateDependencies::default(),
        }
    }

    pub(super) fn node(&self) -> Value {
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

pub(super) fn cluster_fixture(change: impl FnOnce(&mut ClusterFixture)) -> AgentBench {
    let mut bench = AgentBench::new();
    let mut cluster = ClusterFixture::new();
    change(&mut cluster);
    bench.cluster = Some(cluster);
    bench
}

pub(super) fn cluster(bench: &AgentBench) -> &ClusterFixture {
    bench.cluster.as_ref().unwrap()
}

fn is_ready(bench: &AgentBench) -> bool {
    cluster(bench).condition("Ready")["status"] == "True"
}

pub(super) async fn seconds(count: u64) {
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

fn pod_on(name: &str, label: &str) -> String {
    format!("{}  nodeSelector: {{{label}}}\n", pod(name, ""))
}

fn pod_with_cpu(name: &str, cpu: &str) -> String {
    pod(name, &format!(", resources: {{requests: {{cpu: {cpu}}}}}"))
}

/// Status reason and message of the pod of that name.
fn rejection(bench: &AgentBench, name: &str) -> (String, String) {
    let pods = bench.pods();
    let found = pods.iter().find(|pod| pod.name == name).unwrap();
    let text = |field: &str| {
        let value = found.object.pointer(&format!("/status/{field}"));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    (text("reason"), text("message"))
}

async fn until_phase(bench: &AgentBench, name: &str, phase: &str) {
    bench.until(&format!("{name} is {phase}"), |bench| bench.phase_of(name) == phase).await;
}

#[tokio::test(start_paused = true)]
async fn a_label_on_the_node_object_counts_for_later_pods() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    let [a, b, c] = ["a", "b", "c"].map(|name| pod_on(name, "disk: ssd"));
    bench.script.emit(&[("/m/a", &a)]);
    until_phase(&bench, "a-n", "Failed").await;
    let words = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node \
                 affinity/selector";
    assert_eq!(rejection(&bench, "a-n"), ("NodeAffinity".to_owned(), words.to_owned()));
    let path = ObjectPath::node(NODE);
    cluster(&bench).cluster.edit(&path, |node| node["metadata"]["labels"]["disk"] = json!("ssd"));
    seconds(1).await;
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b)]);
    until_phase(&bench, "b-n", "Running").await;
    assert_eq!(bench.phase_of("a-n"), "Failed", "what was decided holds");
    cluster(&bench).cluster.edit(&path, |node| node["metadata"]["labels"]["disk"] = json!("hdd"));
    seconds(1).await;
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b), ("/m/c", &c)]);
    until_phase(&bench, "c-n", "Failed").await;
    assert_eq!(bench.phase_of("b-n"), "Running", "what was decided holds");
}

#[tokio::test(start_paused = true)]
async fn allocatable_that_shrinks_refuses_later_pods() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    let [a, b] = [("a", "600m"), ("b", "500m")].map(|(name, cpu)| pod_with_cpu(name, cpu));
    bench.script.emit(&[("/m/a", &a)]);
    until_phase(&bench, "a-n", "Running").await;
    cluster(&bench).machine.set_cpus(1);
    let shrunk = |bench: &AgentBench| cluster(bench).node()["status"]["allocatable"]["cpu"] == "1";
    bench.until("the node has one processor", shrunk).await;
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b)]);
    until_phase(&bench, "b-n", "Failed").await;
    let (reason, message) = rejection(&bench, "b-n");
    assert_eq!(reason, "UnexpectedAdmissionError");
    assert!(message.ends_with("[(res: cpu, q: 100), ]"), "{message}");
    assert_eq!(bench.phase_of("a-n"), "Running");
}

#[tokio::test(start_paused = true)]
async fn resources_that_others_add_to_the_node_object_are_counted() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    let path = ObjectPath::node(NODE);
    let set = |count: &str| {
        cluster(&bench).cluster.edit(&path, |node| {
            node["status"]["capacity"]["example.com/gpu"] = json!(count);
        });
    };
    let asking = |name: &str| {
        pod(name, ", resources: {requests: {example.com/gpu: 2}, limits: {example.com/gpu: 2}}")
    };
    let [a, b] = ["a", "b"].map(asking);
    set("2");
    seconds(1).await;
    bench.script.emit(&[("/m/a", &a)]);
    until_phase(&bench, "a-n", "Running").await;
    set("3");
    seconds(1).await;
    bench.script.emit(&[("/m/a", &a), ("/m/b", &b)]);
    until_phase(&bench, "b-n", "Failed").await;
    let (_, message) = rejection(&bench, "b-n");
    assert!(message.ends_with("[(res: example.com/gpu, q: 1), ]"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn before_its_object_comes_a_node_admits_by_what_it_would_register() {
    let mut bench = cluster_fixture(|cluster_fixture| {
        cluster_fixture.api.faults.turn(|faults| faults.away = true);
        cluster_fixture.heartbeats.faults.turn(|faults| faults.away = true);
        let node = &mut cluster_fixture.settings.node;
        node.labels = [("zone".to_owned(), "z1".to_owned())].into();
        let effect = "NoExecute".to_owned();
        node.taints = vec![NodeTaint { key: "k".to_owned(), effect, ..NodeTaint::default() }];
    });
    bench.begin();
    let in_zone = pod_on("a", "zone: z1, kubernetes.io/hostname: 'n'");
    let elsewhere = pod_on("b", "zone: z2");
    bench.script.emit(&[("/m/a", &in_zone), ("/m/b", &elsewhere)]);
    until_phase(&bench, "a-n", "Running").await;
    until_phase(&bench, "b-n", "Failed").await;
}

#[tokio::test(start_paused = true)]
async fn admission_keeps_the_last_node_object_where_it_was_deleted() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    let path = ObjectPath::node(NODE);
    cluster(&bench).cluster.edit(&path, |node| node["metadata"]["labels"]["disk"] = json!("ssd"));
    seconds(1).await;
    cluster(&bench).cluster.remove(&path);
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_on("a", "disk: ssd"))]);
    until_phase(&bench, "a-n", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_gone_is_down_and_after_three_minutes_its_pods_are_unknown() {
    let mut bench = cluster_fixture(|_| {});
    bench.begin();
    bench.until("the node is ready", is_ready).await;
    // Long after the last listing, which is no error while the event stream is connected.
    seconds(290).await;
    assert!(is_ready(&bench));
    bench.runtime.set_unavailable(true);
    let message = |bench: &AgentBench| {
        cluster(bench).condition("Ready")["message"].as_str().unwrap_or_default().to_owned()
    };
    let down = |bench: &AgentBench| message(bench) == "container runtime is down";
    let took = bench.until("the runtime is down", down).await;
    assert!(took <= Duration::from_secs(45), "{took:?}");
    let both = |bench: &AgentBench| {
        let message = message(bench);
        message.starts_with(
            "[container runtime is down, PLEG is not healthy: pleg was last seen active 3m",
        ) && message.ends_with(" ago; threshold is 3m0s]")
    };
    let took = took + bench.until("its pods are unknown", both).await;
    assert!((180..=191).contains(&took.as_secs()), "{took:?}");
    bench.runtime.set_unavailable(false);
    let took = bench.until("the node is ready again", is_ready).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
}
