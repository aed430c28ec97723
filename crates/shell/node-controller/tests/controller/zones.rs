//! Zones and the pace at which nodes are tainted.

use node_controller::ControllerConfig;
use ports::cluster_api::ObjectPath;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage::{Stage, seconds};

fn zone(name: &str) -> Value {
    json!({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": name})
}

/// When each node got its NoExecute taint.
fn eviction_taint_times(stage: &Stage) -> Vec<(String, Instant)> {
    let writes = stage.writes("nodes").into_iter().filter(|it| it.succeeded);
    let mut found: Vec<(String, Instant)> = writes
        .filter(|it| it.body.as_ref().is_some_and(|body| body.to_string().contains("NoExecute")))
        .map(|it| (it.path.name, it.at))
        .collect();
    found.dedup_by(|b, a| a.0 == b.0);
    found
}

#[tokio::test(start_paused = true)]
async fn a_healthy_zone_evicts_one_node_per_ten_seconds() {
    let stage = Stage::with_nodes(20);
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    for number in 0..5 {
        stage.nodes.stop_heartbeats(&format!("node-{number}"));
    }
    seconds(130).await;
    let eviction_taint_times = eviction_taint_times(&stage);
    assert_eq!(eviction_taint_times.len(), 5, "{eviction_taint_times:?}");
    for pair in eviction_taint_times.windows(2) {
        let apart = pair[1].1 - pair[0].1;
        assert!(apart.as_millis() >= 9_900, "{apart:?} between {} and {}", pair[0].0, pair[1].0);
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_small_zone_that_is_mostly_dark_is_left_alone() {
    let stage = Stage::new();
    for number in 0..10 {
        stage.nodes.join(&format!("a{number}"), &zone("a"));
        stage.nodes.join(&format!("b{number}"), &zone("b"));
    }
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    for number in 0..7 {
        stage.nodes.stop_heartbeats(&format!("a{number}"));
    }
    seconds(300).await;
    // The first to be detected may be tainted before the zone is seen to be fully not ready, as
    // upstream.
    assert!(eviction_taint_times(&stage).len() <= 2, "{:?}", eviction_taint_times(&stage));
    let labels = [("zone", "r:\0:a")];
    assert_eq!(running.metric("node_collector_unhealthy_nodes_in_zone", &labels), Some(7.0));
    assert_eq!(running.metric("node_collector_zone_size", &labels), Some(10.0));
    assert_eq!(running.metric("node_collector_zone_health", &labels), Some(30.0));
    let waiting = (0..7).map(|number| format!("a{number}"));
    let waiting = waiting.into_iter().find(|name| stage.taints(name).len() == 1);
    let why = running.controller.explain(&waiting.expect("one waits")).await;
    assert!(why.outlook.contains("too many for a zone this small"), "{why}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_fully_disrupted_zone_is_evicted_at_the_normal_rate() {
    let stage = Stage::new();
    for number in 0..4 {
        stage.nodes.join(&format!("a{number}"), &zone("a"));
        stage.nodes.join(&format!("b{number}"), &zone("b"));
    }
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    for number in 0..4 {
        stage.nodes.stop_heartbeats(&format!("a{number}"));
    }
    seconds(130).await;
    assert_eq!(eviction_taint_times(&stage).len(), 4);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_evicted_while_all_zones_are_disrupted() {
    let stage = Stage::new();
    for number in 0..6 {
        stage.nodes.join(&format!("a{number}"), &zone("a"));
        stage.nodes.join(&format!("b{number}"), &zone("b"));
    }
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("a0");
    seconds(70).await;
    assert_eq!(stage.taints("a0").len(), 2);
    for number in 0..6 {
        stage.nodes.stop_heartbeats(&format!("a{number}"));
        stage.nodes.stop_heartbeats(&format!("b{number}"));
    }
    seconds(200).await;
    for number in 0..6 {
        for zone in ["a", "b"] {
            let name = format!("{zone}{number}");
            assert_eq!(stage.taints(&name), ["unreachable:NoSchedule"], "{name}");
        }
    }
    // One node renews again: all silence so far is reset.
    stage.nodes.resume_heartbeats("b3");
    seconds(30).await;
    assert_eq!(stage.taints("b3"), [] as [&str; 0]);
    assert_eq!(stage.taints("a5"), ["unreachable:NoSchedule"]);
    running.end().await;
}

/// As upstream: a share is not rounded, and a zone without nodes is healthy and stays.
#[tokio::test(start_paused = true)]
async fn zone_metrics_count_ready_and_not_ready_nodes() {
    let stage = Stage::new();
    for number in 0..3 {
        stage.nodes.join(&format!("a-{number}"), &zone("a"));
    }
    stage.nodes.join("b-0", &zone("b"));
    let running = stage.start(ControllerConfig::default());
    seconds(10).await;
    stage.nodes.set_ready("a-0", false);
    stage.cluster.remove(&ObjectPath::node("b-0"));
    seconds(10).await;
    let sample_of = |name: &str, zone: &str| {
        let zone = format!("r:\0:{zone}");
        running.metric(name, &[("zone", zone.as_str())])
    };
    assert_eq!(sample_of("node_collector_zone_health", "a"), Some(200.0 / 3.0));
    assert_eq!(sample_of("node_collector_zone_size", "a"), Some(3.0));
    assert_eq!(sample_of("node_collector_unhealthy_nodes_in_zone", "a"), Some(1.0));
    assert_eq!(sample_of("node_collector_zone_health", "b"), Some(100.0));
    assert_eq!(sample_of("node_collector_zone_size", "b"), Some(0.0));
    running.end().await;
}
