//! Pod garbage collection.

use std::time::Duration;

use node_controller::{ControllerConfig, PodCleanupConfig, WriteConfig};
use ports::cluster_api::ObjectPath;
use serde_json::json;

use crate::stage::{Stage, bears, seconds};

#[tokio::test(start_paused = true)]
async fn orphans_go_after_the_quarantine_and_a_look() {
    let stage = Stage::with_nodes(2);
    stage.pod("orphan", "node-9", &bears(None));
    stage.pod("home", "node-1", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(39).await;
    assert!(stage.has_pod("orphan"));
    seconds(30).await;
    assert!(!stage.has_pod("orphan"), "deleted without grace");
    assert!(stage.is_kept("home"));
    let failed = stage.writes("pods");
    let body = failed.iter().find_map(|it| it.body.clone()).expect("a patch");
    assert_eq!(body["status"]["phase"], "Failed");
    assert_eq!(body["status"]["conditions"][0]["reason"], "DeletionByPodGC");
    assert_eq!(body["status"]["conditions"][0]["observedGeneration"], 3);
    let labels = [("namespace", "default"), ("reason", "orphaned")];
    let count = running.metric("pod_gc_collector_force_delete_pods_total", &labels);
    assert_eq!(count, Some(1.0));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_the_list_missed_keeps_its_pods() {
    let stage = Stage::with_nodes(2);
    // The feed cannot parse this node, so it is in no list of ours; the API server has it.
    stage.cluster.put(&ObjectPath::node("odd"), json!({"spec": {"unschedulable": "maybe"}}));
    stage.pod("web", "odd", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(300).await;
    assert!(stage.is_kept("web"));
    running.end().await;
}

/// The confirmation that a node is gone is outdated when its pods are deleted.
#[tokio::test(start_paused = true)]
async fn orphans_whose_node_comes_back_are_kept() {
    for silent_watches in [false, true] {
        let stage = Stage::with_nodes(2);
        for number in 0..4 {
            stage.pod(&format!("orphan-{number}"), "node-9", &bears(None));
        }
        let writes = WriteConfig { max_in_flight: 1, ..WriteConfig::default() };
        let running = stage.start(ControllerConfig { writes, ..ControllerConfig::default() });
        seconds(10).await;
        running.client.faults.turn(|faults| faults.latency = Duration::from_secs(3));
        let lease_reads = || {
            let log = stage.cluster.log();
            log.into_iter().filter(|it| it.path == ObjectPath::node("node-9")).count()
        };
        stage.until("looked for", 90, || lease_reads() == 1).await;
        // It did not exist; now it does, whether or not the watch delivers that.
        running.client.faults.turn(|faults| faults.silent_watches = silent_watches);
        stage.cluster.put(&ObjectPath::node("node-9"), json!({"spec": {}, "status": {}}));
        seconds(30).await;
        for number in 0..4 {
            let name = format!("orphan-{number}");
            assert!(stage.is_kept(&name), "{name}, deaf: {silent_watches}");
            let pod = stage.cluster.pod("default", &name).expect("there");
            assert_eq!(pod.status.phase, "Running");
        }
        let labels = [("namespace", "default"), ("reason", "orphaned")];
        let count = running.metric("pod_gc_collector_force_delete_pods_total", &labels);
        assert_eq!(count, None, "nobody set out to");
        if !silent_watches {
            assert!(
                lease_reads() <= 2,
                "whose node is known need not be looked for: {}",
                lease_reads()
            );
        }
        running.end().await;
    }
}

/// The first absence was over, and no pod was left to delete: the second is another.
#[tokio::test(start_paused = true)]
async fn a_second_absence_has_a_quarantine_of_its_own() {
    for comes_back in [true, false] {
        let stage = Stage::with_nodes(2);
        stage.pod("first", "node-9", &bears(None));
        let running = stage.start(ControllerConfig::default());
        stage.until("cleared away", 90, || !stage.has_pod("first")).await;
        seconds(100).await;
        if comes_back {
            stage.cluster.put(&ObjectPath::node("node-9"), json!({"spec": {}, "status": {}}));
        }
        stage.pod("second", "node-9", &bears(None));
        if comes_back {
            seconds(10).await;
            stage.cluster.remove(&ObjectPath::node("node-9"));
        }
        seconds(38).await;
        assert!(stage.is_kept("second"), "within 40 s; comes back: {comes_back}");
        stage.until("cleared away", 45, || !stage.has_pod("second")).await;
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn out_of_service_frees_stuck_pods() {
    let stage = Stage::with_nodes(3);
    stage.pod("db", "node-1", &json!([]));
    stage.pod("other", "node-2", &json!([]));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("sent away", 90, || !stage.is_kept("db")).await;
    seconds(120).await;
    assert!(stage.has_pod("db"), "its kubelet cannot confirm: it is stuck");
    stage.cluster.edit(&ObjectPath::node("node-1"), |node| {
        let taints = node["spec"]["taints"].as_array_mut().expect("taints");
        taints.push(json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}));
    });
    stage.until("freed", 25, || !stage.has_pod("db")).await;
    assert!(stage.is_kept("other"));
    let labels = [("namespace", "default"), ("reason", "out-of-service")];
    assert_eq!(running.metric("pod_gc_collector_force_delete_pods_total", &labels), Some(1.0));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn out_of_service_on_a_ready_node_deletes_no_pod() {
    let stage = Stage::with_nodes(2);
    stage.pod("db", "node-1", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    stage.cluster.edit(&ObjectPath::node("node-1"), |node| {
        node["spec"]["taints"] =
            json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule"}]);
    });
    let until = stage.cluster.wall().to_seconds_text();
    stage.nodes.stop_heartbeats("node-1");
    stage.cluster.edit(&ObjectPath::pod("default", "db"), |pod| {
        pod["metadata"]["deletionTimestamp"] = json!(until);
    });
    seconds(35).await;
    assert!(stage.has_pod("db"));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn terminated_pods_over_the_threshold_and_unbound_terminating_pods_are_deleted() {
    let stage = Stage::with_nodes(2);
    for number in 0..5 {
        let name = format!("job-{number}");
        stage.pod(&name, "node-1", &bears(None));
        stage.cluster.edit(&ObjectPath::pod("default", &name), |pod| {
            pod["status"]["phase"] = json!("Succeeded");
            pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:0{number}:00Z"));
        });
    }
    let until = stage.cluster.wall().to_seconds_text();
    stage.cluster.put(
        &ObjectPath::pod("default", "unbound"),
        json!({"metadata": {"deletionTimestamp": until}, "spec": {}, "status": {"phase": "Pending"}}),
    );
    let cleanup = PodCleanupConfig { terminated_threshold: 3, ..PodCleanupConfig::default() };
    let config = ControllerConfig { pod_cleanup: cleanup, ..ControllerConfig::default() };
    let running = stage.start(config);
    seconds(30).await;
    let left: Vec<bool> = (0..5).map(|number| stage.has_pod(&format!("job-{number}"))).collect();
    assert_eq!(left, [false, false, true, true, true], "the oldest go first");
    assert!(!stage.has_pod("unbound"));
    running.end().await;
}

/// A pod may terminate after our view of it, and even after our read of it: its phase stays.
#[tokio::test(start_paused = true)]
async fn a_pod_that_succeeded_meanwhile_is_not_called_failed() {
    for after_the_look in [false, true] {
        let stage = Stage::with_nodes(2);
        stage.pod("job", "node-9", &bears(None));
        let running = stage.start(ControllerConfig::default());
        seconds(10).await;
        running.client.faults.turn(|faults| {
            faults.silent_watches = true;
            faults.latency = Duration::from_secs(3);
        });
        let pod = ObjectPath::pod("default", "job");
        let looked = || stage.cluster.log().iter().any(|it| it.path == pod);
        if after_the_look {
            stage.until("looked at", 90, looked).await;
        }
        stage.cluster.edit(&pod, |pod| pod["status"]["phase"] = json!("Succeeded"));
        stage.until("cleared away", 120, || !stage.has_pod("job")).await;
        let calls_failed = |it: &cluster_fake::LoggedRequest| {
            it.succeeded && it.body.as_ref().is_some_and(|body| body["status"]["phase"] == "Failed")
        };
        let failed = stage.writes("pods").iter().filter(|it| calls_failed(it)).count();
        assert_eq!(failed, 0, "after the look: {after_the_look}");
        let labels = [("namespace", "default"), ("reason", "orphaned")];
        let count = running.metric("pod_gc_collector_force_delete_pods_total", &labels);
        assert_eq!(count, Some(1.0));
        running.end().await;
    }
}
