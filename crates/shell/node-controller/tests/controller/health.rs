//! Heartbeats, conditions, the taints that follow them, and pods of silent nodes.

use std::sync::Arc;
use std::time::Duration;

use node_controller::{ApiClients, ControllerConfig};
use ports::cluster_api::ObjectPath;
use serde_json::json;

use crate::stage::{Stage, bears, seconds};

#[tokio::test(start_paused = true)]
async fn a_silent_node_becomes_unknown_and_a_renewal_makes_it_ready_again() {
    let stage = Stage::with_nodes(5);
    stage.pod("web", "node-1", &bears(None));
    stage.pod("elsewhere", "node-2", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    assert_eq!(running.metric("node_collector_evictions_total", &[("zone", "")]), Some(0.0));
    stage.nodes.stop_heartbeats("node-1");
    let took = stage.until("Unknown", 70, || stage.ready("node-1") == "Unknown").await;
    assert!((40..=56).contains(&took), "noticed after {took} s");
    let node = stage.node("node-1");
    for condition in &node.status.conditions {
        let expected = match condition.kind.as_str() {
            "Ready" | "MemoryPressure" | "DiskPressure" | "PIDPressure" => "NodeStatusUnknown",
            other => panic!("{other} is not the controller's"),
        };
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("Unknown", expected));
        assert_eq!(condition.message, "Kubelet stopped posting node status.");
        assert!(condition.last_heartbeat_time < condition.last_transition_time);
    }
    seconds(2).await;
    assert_eq!(stage.taints("node-1"), ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    assert_eq!(stage.pod_condition("web", "Ready").map(|it| it.0).as_deref(), Some("False"));
    assert_eq!(stage.pod_condition("elsewhere", "Ready").map(|it| it.0).as_deref(), Some("True"));
    assert_eq!(stage.cluster.reasons("web"), ["NodeNotReady"]);
    assert_eq!(stage.cluster.reasons("node-1"), ["RegisteredNode", "NodeNotReady"]);

    stage.nodes.resume_heartbeats("node-1");
    stage.until("taints gone", 5, || stage.taints("node-1").is_empty()).await;
    seconds(100).await;
    assert_eq!(stage.ready("node-1"), "True");
    assert!(stage.is_kept("web"));
    for number in [0, 2, 3, 4] {
        assert_eq!(stage.ready(&format!("node-{number}")), "True", "node-{number}");
    }
    assert_eq!(running.metric("node_collector_evictions_total", &[("zone", "")]), Some(1.0));
    running.end().await;
}

/// Its lease is listed before the node, and a later read of it is no new heartbeat.
#[tokio::test(start_paused = true)]
async fn a_node_that_died_before_we_began_has_one_grace() {
    let stage = Stage::with_nodes(10);
    seconds(15).await;
    // Not among the eight whose leases are read at the start.
    stage.nodes.stop_heartbeats("node-9");
    seconds(1).await;
    let running = stage.start(ControllerConfig::default());
    seconds(46).await;
    assert_eq!(stage.ready("node-9"), "True");
    // The watch delivers nothing more, so the lease is read when the grace period ends.
    for number in 0..9 {
        stage.nodes.stop_heartbeats(&format!("node-{number}"));
    }
    let took = stage.until("Unknown", 100, || stage.ready("node-9") == "Unknown").await;
    assert!(took <= 14, "noticed {} s after we began", 46 + took);
    for number in 0..9 {
        assert_eq!(stage.ready(&format!("node-{number}")), "True", "node-{number}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_posts_has_the_startup_grace() {
    let stage = Stage::with_nodes(3);
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.cluster.put(&ObjectPath::node("mute"), json!({"spec": {}, "status": {}}));
    let took = stage.until("Unknown", 90, || stage.ready("mute") == "Unknown").await;
    assert!((58..=66).contains(&took), "noticed after {took} s");
    let node = stage.node("mute");
    assert_eq!(node.status.conditions.len(), 4);
    for condition in &node.status.conditions {
        assert_eq!(condition.reason, "NodeStatusNeverUpdated");
        assert_eq!(condition.message, "Kubelet never posted node status.");
        assert_eq!(condition.last_heartbeat_time, node.metadata.creation_timestamp);
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn taints_follow_the_node_conditions() {
    let stage = Stage::with_nodes(4);
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    stage.cluster.edit(&ObjectPath::node("node-0"), |node| {
        node["spec"]["unschedulable"] = json!(true);
        node["metadata"]["labels"] = json!({"kubernetes.io/os": "linux"});
        node["status"]["conditions"][1]["status"] = json!("True");
    });
    stage.nodes.set_ready("node-3", false);
    seconds(3).await;
    assert_eq!(stage.taints("node-0"), ["disk-pressure:NoSchedule", "unschedulable:NoSchedule"]);
    let labels = stage.node("node-0").metadata.labels;
    assert_eq!(labels.get("beta.kubernetes.io/os").map(String::as_str), Some("linux"));
    assert_eq!(stage.taints("node-3"), ["not-ready:NoExecute", "not-ready:NoSchedule"]);
    // An outdated taint is removed; a swap of the two "lost" taints is immediate.
    stage.cluster.edit(&ObjectPath::node("node-0"), |node| {
        node["spec"]["unschedulable"] = json!(false);
        node["status"]["conditions"][1]["status"] = json!("False");
    });
    stage.nodes.stop_heartbeats("node-3");
    seconds(65).await;
    assert_eq!(stage.taints("node-0"), [] as [&str; 0]);
    assert_eq!(stage.taints("node-3"), ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    stage.nodes.set_ready("node-3", true);
    seconds(3).await;
    assert_eq!(stage.taints("node-3"), [] as [&str; 0]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_was_away_evicts_no_node_for_its_own_absence() {
    let stage = Stage::with_nodes(6);
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    running.client.faults.turn(|faults| faults.away = true);
    seconds(300).await;
    running.client.faults.reset();
    seconds(120).await;
    for number in 0..6 {
        assert_eq!(stage.ready(&format!("node-{number}")), "True");
    }
    let unknown = stage.writes("nodes").iter().filter(|it| it.succeeded).count();
    assert_eq!(unknown, 0, "nothing was written at all");
    // And the watch still works: a node that becomes silent now is detected.
    stage.nodes.stop_heartbeats("node-2");
    stage.until("Unknown", 70, || stage.ready("node-2") == "Unknown").await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_events_is_detected_and_evicts_no_node() {
    for nodes in [6, 20] {
        let stage = Stage::with_nodes(nodes);
        let running = stage.start(ControllerConfig::default());
        seconds(60).await;
        running.client.faults.turn(|faults| faults.silent_watches = true);
        seconds(240).await;
        let written = stage.writes("nodes").iter().filter(|it| it.succeeded).count();
        assert_eq!(written, 0, "live reads showed that all are alive");
        stage.nodes.stop_heartbeats("node-4");
        stage.until("Unknown", 80, || stage.ready("node-4") == "Unknown").await;
        for number in (0..nodes).filter(|number| *number != 4) {
            assert_eq!(stage.ready(&format!("node-{number}")), "True");
        }
        running.end().await;
    }
}

/// Reads in short periods make small gaps count; skipped proofs are not gaps.
#[tokio::test(start_paused = true)]
async fn probes_alone_prove_the_view_in_short_periods_too() {
    for period in [1, 2, 5] {
        let stage = Stage::with_nodes(6);
        let mut config = ControllerConfig::default();
        config.health.monitor_period = Duration::from_secs(period);
        let running = stage.start(config);
        seconds(60).await;
        running.client.faults.turn(|faults| faults.away = true);
        seconds(90).await;
        running.client.faults.reset();
        seconds(2).await;
        running.client.faults.turn(|faults| faults.silent_watches = true);
        seconds(60).await;
        stage.nodes.stop_heartbeats("node-4");
        stage.until("Unknown", 80, || stage.ready("node-4") == "Unknown").await;
        running.end().await;
    }
}

/// Only direct reads detect that the whole cluster has become silent.
#[tokio::test(start_paused = true)]
async fn silence_that_began_while_no_controller_ran_is_detected_by_probes_alone() {
    for away in 90..100 {
        let stage = Stage::with_nodes(1);
        let running = stage.start(ControllerConfig::default());
        seconds(60).await;
        running.client.faults.turn(|faults| faults.away = true);
        seconds(10).await;
        stage.nodes.stop_heartbeats("node-0");
        seconds(away).await;
        running.client.faults.reset();
        let took = stage.until("Unknown", 200, || stage.ready("node-0") == "Unknown").await;
        assert!(took <= 75, "noticed {took} s after we came back");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_only_node_is_marked_unknown_and_not_evicted() {
    let stage = Stage::with_nodes(1);
    stage.pod("web", "node-0", &bears(Some(5)));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-0");
    let took = stage.until("Unknown", 70, || stage.ready("node-0") == "Unknown").await;
    assert!(took <= 56, "noticed after {took} s");
    seconds(300).await;
    assert_eq!(stage.taints("node-0"), ["unreachable:NoSchedule"], "every zone is dark");
    assert!(stage.is_kept("web"));
    let why = running.controller.explain("node-0").await;
    assert!(why.outlook.contains("Every zone is dark"), "{why}");
    assert!(why.leading);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_bound_to_an_unreachable_node_are_marked_too() {
    let stage = Stage::with_nodes(3);
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("Unknown", 70, || stage.ready("node-1") == "Unknown").await;
    stage.pod("late", "node-1", &bears(None));
    seconds(2).await;
    assert_eq!(stage.pod_condition("late", "Ready").map(|it| it.0).as_deref(), Some("False"));
    running.end().await;
}

/// It may still get traffic until its kubelet has deleted it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_is_marked_too_and_once() {
    let stage = Stage::with_nodes(5);
    stage.pod("web", "node-1", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    let until = stage.cluster.wall_in(Duration::from_secs(30)).to_seconds_text();
    stage.cluster.edit(&ObjectPath::pod("default", "web"), |pod| {
        pod["metadata"]["deletionTimestamp"] = json!(until);
    });
    stage.until("Unknown", 70, || stage.ready("node-1") == "Unknown").await;
    let claims = || stage.pod_condition("web", "Ready").map(|it| it.0);
    stage.until("marked", 5, || claims().as_deref() == Some("False")).await;
    seconds(60).await;
    assert!(stage.has_pod("web") && !stage.is_kept("web"), "it is still on its way out");
    assert_eq!(stage.writes("pods").len(), 1);
    assert_eq!(stage.cluster.reasons("web"), ["NodeNotReady"]);
    running.end().await;
}

/// As after a leader's crash: it died before it marked them, and pods are listed first.
#[tokio::test(start_paused = true)]
async fn pods_listed_before_their_unreachable_node_are_marked_too() {
    let stage = Stage::with_nodes(3);
    stage.pod("early", "lost", &bears(None));
    stage.pod("other", "well", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(5).await;
    for (name, ready) in [("lost", "Unknown"), ("well", "True")] {
        let condition = json!({"type": "Ready", "status": ready});
        let node = json!({"spec": {}, "status": {"conditions": [condition]}});
        stage.cluster.put(&ObjectPath::node(name), node);
    }
    let claims = |pod: &str| stage.pod_condition(pod, "Ready").map(|it| it.0);
    stage.until("marked", 5, || claims("early").as_deref() == Some("False")).await;
    assert_eq!(claims("other").as_deref(), Some("True"));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_marked_though_the_answer_to_unknown_is_lost() {
    let stage = Stage::with_nodes(5);
    stage.pod("web", "node-1", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    running.client.faults.turn(|faults| faults.lose_answer_every = 1);
    stage.until("Unknown", 70, || stage.ready("node-1") == "Unknown").await;
    running.client.faults.reset();
    let claims = || stage.pod_condition("web", "Ready").map(|it| it.0);
    stage.until("marked", 15, || claims().as_deref() == Some("False")).await;
    stage.until("told", 5, || stage.cluster.reasons("node-1").len() == 2).await;
    seconds(10).await;
    assert_eq!(stage.cluster.reasons("node-1"), ["RegisteredNode", "NodeNotReady"], "once");
    running.end().await;
}

/// A few healthy nodes cost a few reads: one between two renewals if there is only one node.
#[tokio::test(start_paused = true)]
async fn a_small_quiet_cluster_is_left_in_peace() {
    for (nodes, most) in [(1, 12), (3, 12), (10, 0)] {
        let stage = Stage::with_nodes(nodes);
        let running = stage.start(ControllerConfig::default());
        seconds(60).await;
        let before = stage.cluster.log().len();
        seconds(100).await;
        let log = stage.cluster.log();
        let asked = log.len() - before;
        assert!(asked <= most, "{asked} requests in 100 s for {nodes} nodes");
        // And the silence of one is still detected in time.
        stage.nodes.stop_heartbeats("node-0");
        let took = stage.until("Unknown", 70, || stage.ready("node-0") == "Unknown").await;
        assert!((40..=53).contains(&took), "{nodes} nodes: noticed after {took} s");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_events_are_sent_in_batches_and_none_is_lost() {
    let stage = Stage::with_nodes(45);
    let running = stage.start(ControllerConfig::default());
    let sent_events = || {
        (0..45)
            .filter(|number| stage.cluster.reasons(&format!("node-{number}")) == ["RegisteredNode"])
            .count()
    };
    let took = stage.until("some told", 5, || sent_events() > 0).await;
    assert!(sent_events() <= 20, "{} after {took:?}: not all at once", sent_events());
    stage.until("all told", 10, || sent_events() == 45).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_status_triggers_no_evaluation() {
    let stage = Stage::with_nodes(5);
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    let lease_reads = || {
        let families = running.controller.metrics();
        let name = "node_collector_update_all_nodes_health_duration_seconds";
        let family = families.iter().find(|family| family.name == name).expect("the family");
        let count = family.samples.iter().find(|sample| sample.suffix == "_count");
        count.map(|sample| sample.value).expect("a count")
    };
    let before = lease_reads();
    for number in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stage.cluster.edit(&ObjectPath::node("node-0"), |node| {
            node["metadata"]["annotations"] = json!({"beat": number.to_string()});
        });
    }
    let looked = lease_reads() - before;
    assert!(looked <= 20.0, "{looked} looks at all nodes in 10 s of status alone");
    stage.nodes.set_ready("node-3", false);
    stage.until("a taint", 2, || !stage.taints("node-3").is_empty()).await;
    running.end().await;
}

/// The node is back, and its kubelet has updated its pod, while our mark was in flight.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_returned_node_keeps_the_status_its_kubelet_wrote() {
    let stage = Stage::with_nodes(10);
    stage.pod("web", "node-1", &bears(None));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    seconds(40).await;
    let latency = Duration::from_secs(2);
    running.client.faults.turn(|faults| faults.latency = latency);
    stage.until("Unknown", 40, || stage.ready("node-1") == "Unknown").await;
    seconds(1).await;
    stage.nodes.resume_heartbeats("node-1");
    stage.cluster.edit(&ObjectPath::pod("default", "web"), |pod| {
        pod["status"]["message"] = json!("as its kubelet says");
    });
    seconds(60).await;
    assert_eq!(stage.ready("node-1"), "True");
    assert_eq!(stage.pod_condition("web", "Ready").map(|it| it.0).as_deref(), Some("True"));
    let tried = stage.writes("pods");
    assert!(tried.len() == 1 && !tried[0].succeeded, "the mark came too late: {tried:?}");
    assert_eq!(
        stage.cluster.reasons("web"),
        [] as [&str; 0],
        "nothing was written, so nothing told"
    );
    running.end().await;
}

/// A pod is not marked if its node comes back before the write; if not, all pods are.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_early_keeps_its_pods_ready() {
    let stage = Stage::with_nodes(10);
    for pod in 0..40 {
        stage.pod(&format!("pod-{pod}"), "node-1", &bears(None));
    }
    let client = stage.cluster.client("one");
    let (work, quick) = (Arc::new(client.with_rate_limit(2, 2)), Arc::new(client.clone()));
    let clients = ApiClients { work, lease_reads: quick.clone(), election: quick };
    let running = stage.start_with(client, clients, ControllerConfig::default(), None);
    let marked = || {
        let ready = |pod| stage.pod_condition(&format!("pod-{pod}"), "Ready");
        (0..40).filter(|pod| ready(*pod).is_some_and(|it| it.0 == "False")).count()
    };
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("at work", 90, || marked() >= 3).await;
    stage.nodes.resume_heartbeats("node-1");
    seconds(60).await;
    assert!(marked() <= 8, "{} pods of a node that is well", marked());
    stage.nodes.stop_heartbeats("node-1");
    stage.until("all marked", 150, || marked() == 40).await;
    running.end().await;
}

/// A webhook refuses one pod's mark: the other pods of its node do not wait for it.
#[tokio::test(start_paused = true)]
async fn a_refused_mark_is_retried_and_delays_no_other_pod() {
    let stage = Stage::with_nodes(10);
    for pod in 0..20 {
        stage.pod(&format!("pod-{pod}"), "node-1", &bears(None));
    }
    let running = stage.start(ControllerConfig::default());
    let marked = || {
        let ready = |pod| stage.pod_condition(&format!("pod-{pod}"), "Ready");
        (0..20).filter(|pod| ready(*pod).is_some_and(|it| it.0 == "False")).count()
    };
    let tries = |pod: &str| {
        let writes = stage.writes("pods").into_iter();
        writes.filter(|it| it.path.name == pod).count()
    };
    seconds(60).await;
    running.client.faults.turn(|faults| faults.refused = vec!["pod-3".to_owned()]);
    stage.nodes.stop_heartbeats("node-1");
    stage.until("Unknown", 70, || stage.ready("node-1") == "Unknown").await;
    stage.until("all others marked", 5, || marked() == 19).await;
    assert_eq!(tries("pod-3"), 1);
    seconds(100).await;
    assert!((3..=5).contains(&tries("pod-3")), "{} tries in 100 s", tries("pod-3"));
    running.client.faults.reset();
    stage.until("marked too", 35, || marked() == 20).await;
    // On a node that is back a refused mark is dropped.
    running.client.faults.turn(|faults| faults.refused = vec!["late".to_owned()]);
    stage.pod("late", "node-1", &bears(None));
    stage.until("refused", 5, || tries("late") == 1).await;
    stage.nodes.resume_heartbeats("node-1");
    running.client.faults.reset();
    seconds(100).await;
    assert_eq!(stage.pod_condition("late", "Ready").map(|it| it.0).as_deref(), Some("True"));
    assert_eq!(tries("late"), 1);
    running.end().await;
}
