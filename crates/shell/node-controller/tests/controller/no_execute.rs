//! Evictions by NoExecute taints.

use std::sync::Arc;
use std::time::Duration;

use cluster_fake::ApiVerb;
use node_controller::{ApiClients, ControllerConfig};
use ports::cluster_api::ObjectPath;
use serde_json::json;

use crate::stage::{Stage, bears, seconds};

fn taint(stage: &Stage, node: &str, key: &str) {
    let at = stage.cluster.wall().to_seconds_text();
    stage.cluster.edit(&ObjectPath::node(node), |node| {
        node["spec"]["taints"] = json!([{"key": key, "effect": "NoExecute", "timeAdded": at}]);
    });
}

fn untaint(stage: &Stage, node: &str) {
    stage.cluster.edit(&ObjectPath::node(node), |node| node["spec"]["taints"] = json!([]));
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_toleration_are_evicted_at_once_and_the_others_after_their_seconds() {
    let stage = Stage::with_nodes(3);
    stage.pod("now", "node-1", &json!([]));
    stage.pod("later", "node-1", &bears(Some(60)));
    stage.pod("never", "node-1", &bears(None));
    stage.pod("elsewhere", "node-2", &json!([]));
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    stage.nodes.stop_heartbeats("node-1");
    taint(&stage, "node-1", "example.com/maintenance");
    seconds(2).await;
    assert!(!stage.is_kept("now"));
    let condition = stage.pod_condition("now", "DisruptionTarget");
    let expected = ("True".to_owned(), "DeletionByTaintManager".to_owned());
    assert_eq!(condition, Some(expected));
    let event_messages = stage.cluster.events();
    let event_messages =
        event_messages.iter().find(|event| event.about.name == "now").expect("an event");
    assert_eq!(event_messages.reason, "TaintManagerEviction");
    assert_eq!(event_messages.message, "Marking for deletion Pod default/now");
    assert_eq!(event_messages.component, "taint-eviction-controller");
    assert!(stage.is_kept("later"));
    let why = running.controller.explain("node-1").await;
    let deferred = why.pods.iter().find(|(pod, _)| pod == "default/later");
    assert!(deferred.is_some_and(|(_, when)| when.contains("It goes in 5")), "{why}");
    seconds(55).await;
    assert!(stage.is_kept("later"));
    seconds(8).await;
    assert!(!stage.is_kept("later"));
    seconds(600).await;
    assert!(stage.is_kept("never") && stage.is_kept("elsewhere"));
    assert_eq!(running.metric("taint_eviction_controller_pod_deletions_total", &[]), Some(2.0));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_goes_in_time_spares_the_pod() {
    let stage = Stage::with_nodes(2);
    stage.pod("later", "node-1", &bears(Some(60)));
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    taint(&stage, "node-1", "example.com/maintenance");
    seconds(50).await;
    untaint(&stage, "node-1");
    seconds(100).await;
    assert!(stage.is_kept("later"));
    let event_messages: Vec<String> =
        stage.cluster.events().iter().map(|event| event.message.clone()).collect();
    assert!(
        event_messages.contains(&"Cancelling deletion of Pod default/later".to_owned()),
        "{event_messages:?}"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_runs_on_while_there_is_no_controller() {
    let stage = Stage::with_nodes(3);
    stage.pod("web", "node-1", &bears(Some(300)));
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    taint(&stage, "node-1", "example.com/maintenance");
    seconds(100).await;
    running.kill();
    seconds(150).await;
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    assert!(stage.is_kept("web"), "290 of 300 s");
    seconds(15).await;
    assert!(!stage.is_kept("web"), "the restart did not begin the time anew");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_send_away_before_things_have_settled() {
    let stage = Stage::with_nodes(3);
    stage.pod("web", "node-1", &bears(Some(60)));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("given up", 80, || stage.taints("node-1").len() == 2).await;
    running.kill();
    seconds(120).await;
    // The node comes back together with the controller: its pods stay.
    let running = stage.start(ControllerConfig::default());
    seconds(5).await;
    stage.nodes.resume_heartbeats("node-1");
    seconds(200).await;
    assert!(stage.is_kept("web"));
    assert_eq!(stage.taints("node-1"), [] as [&str; 0]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_made_again_is_not_the_one_that_had_to_go() {
    let stage = Stage::with_nodes(2);
    stage.pod("db-0", "node-1", &bears(Some(30)));
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    taint(&stage, "node-1", "example.com/maintenance");
    seconds(20).await;
    stage.cluster.remove(&ObjectPath::pod("default", "db-0"));
    stage.pod("db-0", "node-0", &bears(Some(30)));
    seconds(300).await;
    assert!(stage.is_kept("db-0"));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_the_live_node_no_longer_calls_for_is_dropped() {
    let stage = Stage::with_nodes(3);
    stage.pod("web", "node-1", &bears(Some(30)));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    taint(&stage, "node-1", "example.com/maintenance");
    seconds(10).await;
    // The watches deliver nothing more; meanwhile another client removes the taint.
    running.client.faults.turn(|faults| faults.silent_watches = true);
    untaint(&stage, "node-1");
    seconds(120).await;
    assert!(stage.is_kept("web"));
    running.end().await;
}

/// Its pods are evicted a few at a time, so that a node that comes back keeps the rest.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_keeps_the_pods_that_are_left() {
    let stage = Stage::with_nodes(10);
    for pod in 0..40 {
        stage.pod(&format!("pod-{pod}"), "node-1", &bears(Some(30)));
    }
    let client = stage.cluster.client("one");
    let (work, quick) = (Arc::new(client.with_rate_limit(4, 4)), Arc::new(client.clone()));
    let clients = ApiClients { work, lease_reads: quick.clone(), election: quick };
    let running = stage.start_with(client, clients, ControllerConfig::default(), None);
    seconds(60).await;
    stage.nodes.stop_heartbeats("node-1");
    stage.until("at work", 150, || stage.deletions().len() >= 3).await;
    stage.nodes.resume_heartbeats("node-1");
    stage.until("well again", 60, || stage.taints("node-1").is_empty()).await;
    seconds(120).await;
    let gone = stage.deletions().len();
    assert!(gone <= 11, "{gone} pods of a node that came back after 3 of them");
    // And one that stays away loses them all.
    stage.nodes.stop_heartbeats("node-1");
    stage.until("all gone", 300, || stage.deletions().len() == 40).await;
    running.end().await;
}

/// One taint is left on the node when the pods are evicted, and this pod tolerates it.
#[tokio::test(start_paused = true)]
async fn a_live_read_is_judged_by_what_the_pod_bears() {
    let stage = Stage::with_nodes(3);
    let bears_one = json!([
        {"key": "example.com/borne", "operator": "Exists"},
        {"key": "example.com/other", "operator": "Exists", "tolerationSeconds": 30},
    ]);
    stage.pod("web", "node-1", &bears_one);
    stage.pod("other", "node-1", &bears(Some(30)));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    let at = stage.cluster.wall().to_seconds_text();
    let taint = |key: &str| json!({"key": key, "effect": "NoExecute", "timeAdded": at});
    let (borne, other) = (taint("example.com/borne"), taint("example.com/other"));
    let set = |taints: serde_json::Value| {
        stage.cluster.edit(&ObjectPath::node("node-1"), |node| node["spec"]["taints"] = taints);
    };
    set(json!([borne, other]));
    seconds(10).await;
    running.client.faults.turn(|faults| faults.silent_watches = true);
    set(json!([borne]));
    seconds(120).await;
    assert!(!stage.is_kept("other"), "its time is over");
    assert!(stage.is_kept("web"), "what sent it away is gone");
    running.end().await;
}

/// The read of a node that is gone or was created again since is ignored.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_while_its_pods_are_sent_away_stays_gone() {
    for made_again in [false, true] {
        let stage = Stage::with_nodes(3);
        let bears_one = json!([
            {"key": "example.com/borne", "operator": "Exists"},
            {"key": "example.com/other", "operator": "Exists", "tolerationSeconds": 30},
        ]);
        stage.pod("web", "node-1", &bears_one);
        stage.pod("other", "node-1", &bears(Some(30)));
        let running = stage.start(ControllerConfig::default());
        seconds(60).await;
        let path = ObjectPath::node("node-1");
        let at = stage.cluster.wall().to_seconds_text();
        let taint = |key: &str| json!({"key": key, "effect": "NoExecute", "timeAdded": at});
        let (borne, other) = (taint("example.com/borne"), taint("example.com/other"));
        stage.cluster.edit(&path, |node| node["spec"]["taints"] = json!([borne, other]));
        seconds(10).await;
        running.client.faults.turn(|faults| {
            faults.silent_watches = true;
            faults.latency = Duration::from_secs(1);
        });
        stage.cluster.edit(&path, |node| node["spec"]["taints"] = json!([borne]));
        // The one pod stays, by this read; the other's deletion is in flight for some seconds more.
        let is_look =
            |it: &cluster_fake::LoggedRequest| it.verb == ApiVerb::Read && it.path == path;
        stage.until("read", 120, || stage.cluster.log().iter().any(is_look)).await;
        assert!(stage.is_kept("other"), "its deletion is yet to come");
        stage.nodes.stop_heartbeats("node-1");
        stage.cluster.remove(&path);
        if made_again {
            stage.nodes.join("node-1", &json!({}));
        }
        running.client.faults.turn(|faults| faults.silent_watches = false);
        stage.until("sent away", 10, || !stage.is_kept("other")).await;
        seconds(20).await;
        running.client.faults.reset();
        let reasons = stage.cluster.reasons("node-1");
        if made_again {
            assert_eq!(reasons, ["RegisteredNode", "RemovingNode", "RegisteredNode"]);
            seconds(120).await;
            assert!(stage.is_kept("web"), "its node has no taint");
        } else {
            assert_eq!(reasons, ["RegisteredNode", "RemovingNode"]);
            let why = running.controller.explain("node-1").await;
            assert!(why.outlook.contains("does not know"), "{why}");
            stage.until("an orphan, cleared away", 120, || !stage.has_pod("web")).await;
        }
        running.end().await;
    }
}

/// The watch shows the condition that we write before a deletion as a change of the pod.
#[tokio::test(start_paused = true)]
async fn our_own_condition_does_not_send_a_pod_away_once_more() {
    let stage = Stage::with_nodes(3);
    stage.pod("web", "node-1", &bears(Some(30)));
    let running = stage.start(ControllerConfig::default());
    seconds(60).await;
    running.client.faults.turn(|faults| faults.latency = Duration::from_secs(1));
    taint(&stage, "node-1", "example.com/maintenance");
    stage.until("sent away", 60, || !stage.is_kept("web")).await;
    seconds(30).await;
    let log = stage.cluster.log().into_iter();
    let web = ObjectPath::pod("default", "web");
    let asked: Vec<ApiVerb> = log.filter(|it| it.path == web).map(|it| it.verb).collect();
    assert_eq!(asked, [ApiVerb::Read, ApiVerb::Patch, ApiVerb::Delete]);
    running.end().await;
}

/// As upstream's event for a pod that another client deleted.
#[tokio::test(start_paused = true)]
async fn a_pod_deleted_before_its_eviction_gets_a_cancellation_event() {
    let stage = Stage::with_nodes(3);
    stage.pod("early", "node-1", &bears(Some(60)));
    stage.pod("late", "node-1", &bears(Some(60)));
    let running = stage.start(ControllerConfig::default());
    seconds(40).await;
    taint(&stage, "node-1", "example.com/maintenance");
    seconds(20).await;
    stage.cluster.remove(&ObjectPath::pod("default", "early"));
    stage.until("sent away", 60, || !stage.is_kept("late")).await;
    seconds(30).await;
    let event_messages = |name: &str| -> Vec<String> {
        let events = stage.cluster.events().into_iter();
        events.filter(|it| it.about.name == name).map(|it| it.message).collect()
    };
    assert_eq!(event_messages("early"), ["Cancelling deletion of Pod default/early"]);
    assert_eq!(event_messages("late"), ["Marking for deletion Pod default/late"]);
    running.end().await;
}
