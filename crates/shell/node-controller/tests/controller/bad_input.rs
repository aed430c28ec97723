//! Invalid input and faults: no panic, no wrong eviction.

use std::sync::Arc;
use std::time::Duration;

use node_controller::{ApiClients, ControllerConfig};
use ports::cluster_api::ObjectPath;
use serde_json::json;

use crate::stage::{Stage, bears, seconds};

fn all_well(stage: &Stage, count: usize, but: &[usize]) {
    for number in (0..count).filter(|number| !but.contains(number)) {
        let name = format!("node-{number}");
        assert_eq!(stage.ready(&name), "True", "{name}");
        assert!(stage.is_kept(&format!("pod-{number}")), "pod-{number}");
    }
}

fn populated(count: usize) -> Stage {
    let stage = Stage::with_nodes(count);
    for number in 0..count {
        stage.pod(&format!("pod-{number}"), &format!("node-{number}"), &bears(Some(10)));
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_every_second_write() {
    let stage = populated(8);
    let running = stage.start(ControllerConfig::default());
    running.client.faults.turn(|faults| faults.conflict_every = 2);
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-2");
    stage.until("given up", 80, || stage.taints("node-2").len() == 2).await;
    stage.until("sent away", 30, || !stage.is_kept("pod-2")).await;
    all_well(&stage, 8, &[2]);
    stage.nodes.resume_heartbeats("node-2");
    stage.until("well again", 10, || stage.taints("node-2").is_empty()).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_all_the_time() {
    let stage = populated(8);
    let running = stage.start(ControllerConfig::default());
    running.client.faults.turn(|faults| faults.expires = true);
    seconds(120).await;
    all_well(&stage, 8, &[]);
    stage.nodes.stop_heartbeats("node-5");
    stage.until("sent away", 120, || !stage.is_kept("pod-5")).await;
    all_well(&stage, 8, &[5]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_thrown_away_again_and_again() {
    let stage = populated(8);
    let running = stage.start(ControllerConfig::default());
    for _ in 0..60 {
        seconds(2).await;
        stage.cluster.compact();
    }
    all_well(&stage, 8, &[]);
    assert!(stage.writes("nodes").is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_comes_and_goes() {
    let stage = populated(8);
    let running = stage.start(ControllerConfig::default());
    seconds(30).await;
    for round in 1..20 {
        running.client.faults.turn(|faults| faults.away = true);
        seconds(round * 7 % 45).await;
        running.client.faults.reset();
        seconds(round * 5 % 30).await;
    }
    all_well(&stage, 8, &[]);
    let requests = stage.cluster.log().len();
    assert!(requests < 5_000, "{requests} requests: nobody is hammered");
    stage.nodes.stop_heartbeats("node-1");
    stage.until("sent away", 150, || !stage.is_kept("pod-1")).await;
    all_well(&stage, 8, &[1]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_answers_slowly_or_not_at_all() {
    let stage = populated(8);
    let running = stage.start(ControllerConfig::default());
    seconds(30).await;
    running.client.faults.turn(|faults| faults.latency = Duration::from_secs(2));
    stage.nodes.stop_heartbeats("node-6");
    stage.until("sent away", 200, || !stage.is_kept("pod-6")).await;
    running.client.faults.turn(|faults| faults.hangs = true);
    seconds(200).await;
    running.client.faults.reset();
    seconds(100).await;
    all_well(&stage, 8, &[6]);
    running.end().await;
}

/// The rate limit of one client says nothing about the API server: it does not delay other
/// requests.
#[tokio::test(start_paused = true)]
async fn rate_limited_probes_delay_no_write() {
    // Two leases, and so a watch that is quiet for long: leases are read every few seconds.
    let stage = Stage::with_nodes(2);
    let (client, crowded) = (stage.cluster.client("one"), stage.cluster.client("one"));
    crowded.faults.turn(|faults| faults.turn_in = Duration::from_secs(60));
    let work = Arc::new(client.clone());
    let clients =
        ApiClients { lease_reads: Arc::new(crowded.clone()), election: work.clone(), work };
    let running = stage.start_with(client, clients, ControllerConfig::default(), None);
    seconds(30).await;
    for unschedulable in [true, false, true] {
        stage.cluster.edit(&ObjectPath::node("node-0"), |node| {
            node["spec"]["unschedulable"] = json!(unschedulable);
        });
        let written = || stage.taints("node-0").is_empty() != unschedulable;
        stage.until("written", 3, written).await;
        seconds(7).await;
    }
    // Once these reads succeed, a node that becomes silent is detected.
    crowded.faults.reset();
    stage.nodes.stop_heartbeats("node-1");
    stage.until("noticed", 90, || stage.ready("node-1") == "Unknown").await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_years_off() {
    let stage = populated(8);
    for (number, years) in [(0, 30), (1, -30), (2, 200), (3, -300)] {
        stage.nodes.skew(&format!("node-{number}"), years * 31_536_000);
    }
    let running = stage.start(ControllerConfig::default());
    seconds(120).await;
    all_well(&stage, 8, &[]);
    // A taint from the future, and one from long ago.
    for (node, at) in [("node-4", "2126-01-01T00:00:00Z"), ("node-5", "1996-01-01T00:00:00Z")] {
        stage.cluster.edit(&ObjectPath::node(node), |node| {
            let taint = json!({"key": "a/b", "effect": "NoExecute", "timeAdded": at});
            node["spec"]["taints"] = json!([taint]);
        });
    }
    seconds(8).await;
    assert!(stage.is_kept("pod-4") && stage.is_kept("pod-5"), "ten seconds from our sight of it");
    seconds(5).await;
    assert!(!stage.is_kept("pod-4") && !stage.is_kept("pod-5"));
    for number in [0, 1] {
        stage.nodes.stop_heartbeats(&format!("node-{number}"));
    }
    stage.until("noticed", 70, || stage.ready("node-0") == "Unknown").await;
    stage.until("noticed", 70, || stage.ready("node-1") == "Unknown").await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn our_own_clock_jumps() {
    let stage = populated(8);
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    for off in [3_600, 10 * 31_536_000, 0, -31_536_000, 0, 7] {
        running.machine.off_seconds.store(off, std::sync::atomic::Ordering::Relaxed);
        seconds(90).await;
        all_well(&stage, 8, &[]);
    }
    stage.nodes.stop_heartbeats("node-3");
    stage.until("sent away", 150, || !stage.is_kept("pod-3")).await;
    all_well(&stage, 8, &[3]);
    running.end().await;
}

/// A machine without a real-time clock starts days behind, and its clock is set a minute later; the
/// process goes on counting from where it started, and all timestamps of others are ahead of it.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_days_behind_at_the_start() {
    let stage = populated(8);
    let running = stage.start_off(-3 * 86_400, ControllerConfig::default());
    seconds(60).await;
    running.machine.off_seconds.store(0, std::sync::atomic::Ordering::Relaxed);
    stage.pod("late", "node-3", &bears(Some(10)));
    seconds(20).await;
    stage.nodes.stop_heartbeats("node-3");
    let gone = || !stage.is_kept("pod-3") && !stage.is_kept("late");
    let took = stage.until("sent away", 150, gone).await;
    assert!((50..=75).contains(&took), "sent away after {took} s");
    all_well(&stage, 8, &[3]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_make_no_sense() {
    let stage = populated(4);
    let nonsense = [
        json!({}),
        json!({"metadata": {"labels": null, "annotations": null}, "spec": null, "status": null}),
        json!({"spec": {"taints": [{"key": "", "effect": "Whenever"}]}, "status": {"conditions": null}}),
        json!({"spec": {"podCIDRs": ["300.1.2.3/99", "", "::/0"]}, "status": {"conditions": [{}]}}),
        json!({"spec": {"taints": "none"}, "status": {"conditions": 7}}),
        json!({"status": {"conditions": [
            {"type": "Ready", "status": "Perhaps", "lastHeartbeatTime": null},
            {"type": "Ready", "status": "True"},
        ]}}),
        json!({"metadata": {"labels": {"topology.kubernetes.io/zone": ""}}}),
    ];
    for (number, object) in nonsense.into_iter().enumerate() {
        stage.cluster.put(&ObjectPath::node(&format!("odd-{number}")), object);
    }
    for (number, object) in [
        json!({}),
        json!({"spec": {"nodeName": "odd-1", "tolerations": null}, "status": {"conditions": null}}),
        json!({"spec": {"nodeName": "odd-2", "tolerations": [{"operator": "Whatever"}]}}),
        json!({"spec": {"nodeName": "node-1", "tolerations": [{"tolerationSeconds": -5}]},
               "status": {"phase": "Dreaming"}}),
    ]
    .into_iter()
    .enumerate()
    {
        stage.cluster.put(&ObjectPath::pod("default", &format!("odd-{number}")), object);
    }
    stage.cluster.put(&ObjectPath::lease("kube-node-lease", "nobody"), json!({"spec": {}}));
    stage.cluster.put(&ObjectPath::lease("kube-node-lease", "node-1"), json!({"spec": null}));
    let running = stage.start(ControllerConfig::default());
    seconds(200).await;
    all_well(&stage, 4, &[]);
    // A node with an unparsable taint gets no taint writes.
    let taints =
        stage.cluster.get(&ObjectPath::node("odd-2")).expect("there")["spec"]["taints"].clone();
    assert_eq!(taints, json!([{"key": "", "effect": "Whenever"}]));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_made_again_begins_anew() {
    let stage = populated(4);
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-2");
    seconds(35).await;
    stage.cluster.remove(&ObjectPath::node("node-2"));
    stage.nodes.join("node-2", &json!({}));
    seconds(30).await;
    all_well(&stage, 4, &[]);
    let reasons = stage.cluster.reasons("node-2");
    assert_eq!(reasons, ["RegisteredNode", "RemovingNode", "RegisteredNode"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_in_the_explanation() {
    let stage = populated(4);
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    running.client.faults.turn(|faults| faults.unreadable_every = 1);
    stage.nodes.set_ready("node-1", false);
    seconds(5).await;
    let why = running.controller.explain("node-1").await;
    let is_write_note = |note: &String| {
        note.starts_with("A write to it failed") && note.contains("unreadable response")
    };
    assert!(why.notes.iter().any(is_write_note), "{why}");
    running.end().await;
}

/// The write is not retried ten times a second meanwhile.
#[tokio::test(start_paused = true)]
async fn taints_beside_one_that_cannot_be_read_wait_until_it_can() {
    let stage = populated(10);
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    stage.cluster.edit(&ObjectPath::node("node-1"), |node| {
        node["spec"]["unschedulable"] = json!(true);
        node["spec"]["taints"] = json!([{"key": "", "effect": "Whenever"}]);
    });
    let lease_reads = || {
        let families = running.controller.metrics();
        let name = "node_collector_update_all_nodes_health_duration_seconds";
        let family = families.iter().find(|family| family.name == name).expect("the family");
        let count = family.samples.iter().find(|sample| sample.suffix == "_count");
        count.map(|sample| sample.value).expect("a count")
    };
    seconds(2).await;
    let before = lease_reads();
    seconds(60).await;
    assert!(lease_reads() - before < 100.0, "{} looks in a minute", lease_reads() - before);
    let why = running.controller.explain("node-1").await;
    assert!(why.notes.iter().any(|note| note.contains("cannot be read")), "{why}");
    stage.cluster.edit(&ObjectPath::node("node-1"), |node| node["spec"]["taints"] = json!([]));
    stage.until("written", 5, || stage.taints("node-1") == ["unschedulable:NoSchedule"]).await;
    running.end().await;
}

/// Between two attempts of a refused write it causes no requests.
#[tokio::test(start_paused = true)]
async fn a_refused_taint_causes_no_busy_retry() {
    let stage = populated(10);
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    running.client.faults.turn(|faults| faults.refused = vec!["node-1".to_owned()]);
    stage.nodes.set_ready("node-1", false);
    seconds(5).await;
    let tries = || stage.writes("nodes").len();
    let (before, tried) = (stage.cluster.log().len(), tries());
    assert_eq!(tried, 1);
    seconds(60).await;
    let asked = stage.cluster.log().len() - before;
    assert!(asked <= 60, "{asked} requests in a minute");
    assert!(tries() > tried, "it is tried again");
    let why = running.controller.explain("node-1").await;
    assert!(why.outlook.contains("refused and will be tried again"), "{why}");
    running.client.faults.reset();
    let both = ["not-ready:NoExecute", "not-ready:NoSchedule"];
    stage.until("written", 45, || stage.taints("node-1") == both).await;
    all_well(&stage, 10, &[1]);
    running.end().await;
}
