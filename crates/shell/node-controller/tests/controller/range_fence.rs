//! Writes of an earlier leader assign no pod CIDR any more.

use std::sync::Arc;
use std::time::Duration;

use cluster_fake::{ApiVerb, FakeClient, LoggedRequest};
use node_controller::{ApiClients, ControllerConfig};
use serde_json::json;

use crate::ranges::ranges;
use crate::stage::{RunningController, Stage, leader, seconds};

const FENCE: &str = "keelson/range-fence";
/// Two pod CIDRs, for two of three nodes.
const TWO: (&str, u8) = ("10.1.0.0/23", 24);

fn config(identity: &str, cluster: (&str, u8)) -> ControllerConfig {
    ControllerConfig { ranges: ranges(&[cluster], &[]).ranges, ..leader(identity) }
}

/// An instance whose writes can be delayed while its lease is renewed.
fn start(stage: &Stage, name: &str) -> (FakeClient, RunningController) {
    let (client, quick) = (stage.cluster.client(name), Arc::new(stage.cluster.client(name)));
    let work = Arc::new(client.clone());
    let clients = ApiClients { work, lease_reads: quick.clone(), election: quick };
    (client.clone(), stage.start_with(client, clients, config(name, TWO), None))
}

/// The fence writes to nodes.
fn touches(stage: &Stage) -> Vec<LoggedRequest> {
    let is_touch = |it: &LoggedRequest| {
        it.body.as_ref().is_some_and(|body| body["metadata"]["annotations"][FENCE].is_string())
    };
    stage.writes("nodes").into_iter().filter(is_touch).collect()
}

fn range(stage: &Stage, node: &str) -> String {
    stage.node(node).spec.pod_cidr
}

/// The first instance has sent the last CIDR to one node when it dies; its successor assigns that
/// CIDR to another; then the first one's write arrives.
#[tokio::test(start_paused = true)]
async fn a_range_that_arrives_late_is_refused() {
    let stage = Stage::with_nodes(1);
    let (client, first) = start(&stage, "one");
    stage.until("handed out", 10, || !range(&stage, "node-0").is_empty()).await;
    assert!(touches(&stage).is_empty(), "nobody was there before the first");
    client.faults.turn(|faults| faults.late = Duration::from_secs(60));
    stage.nodes.join("node-x", &json!({}));
    seconds(1).await;
    stage.nodes.join("node-a", &json!({}));
    seconds(1).await;
    first.kill();
    let (_, second) = start(&stage, "two");
    stage.until("handed out again", 30, || !range(&stage, "node-a").is_empty()).await;
    let sent = || {
        let is_late = |it: &LoggedRequest| it.client == "one" && it.path.name == "node-x";
        stage.writes("nodes").into_iter().find(is_late)
    };
    assert!(sent().is_none(), "it is still on its way");
    stage.until("it arrives", 60, || sent().is_some()).await;
    let late = sent().expect("it came");
    let body = late.body.expect("a patch");
    assert_eq!(body["spec"]["podCIDR"], json!(range(&stage, "node-a")), "the very same range");
    assert!(!late.succeeded && late.verb == ApiVerb::Patch, "it was refused");
    seconds(5).await;
    assert_eq!(range(&stage, "node-x"), "");
    // A node with a pod CIDR has no annotation of ours any more; one that waits still has it.
    assert_eq!(stage.node("node-a").metadata.annotations.get(FENCE), None);
    assert!(stage.node("node-x").metadata.annotations.contains_key(FENCE));
    assert_eq!(touches(&stage).len(), 2);
    // Nor does the annotation block the next assignment.
    stage.cluster.remove(&ports::cluster_api::ObjectPath::node("node-a"));
    stage.until("handed on", 5, || !range(&stage, "node-x").is_empty()).await;
    assert_eq!(stage.node("node-x").metadata.annotations.get(FENCE), None);
    second.end().await;
}

/// A released lease does not exclude writes in flight; a second start without election knows no
/// predecessor.
#[tokio::test(start_paused = true)]
async fn a_later_leader_fences_nodes_without_a_range() {
    let stage = Stage::with_nodes(5);
    let (_, first) = start(&stage, "one");
    stage.until("handed out", 10, || !range(&stage, "node-0").is_empty()).await;
    seconds(5).await;
    assert!(touches(&stage).is_empty());
    first.end().await;
    let (_, second) = start(&stage, "two");
    seconds(20).await;
    assert_eq!(touches(&stage).len(), 3, "and only those");
    second.end().await;
    let alone = stage.start(ranges(&[TWO], &[]));
    seconds(10).await;
    assert_eq!(touches(&stage).len(), 6, "and not twice with the same value");
    let versions = touches(&stage).iter().filter(|it| it.succeeded).count();
    assert_eq!(versions, 6);
    alone.end().await;
}

/// A node that cannot be written delays the others for a while, and that is reported.
#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_does_not_hold_up_ranges_for_ever() {
    let stage = Stage::with_nodes(3);
    let client = stage.cluster.client("one");
    client.faults.turn(|faults| faults.refused = vec!["node-1".to_owned()]);
    let clients = ApiClients::one(Arc::new(client.clone()));
    let config = ranges(&[("10.1.0.0/16", 24)], &[]);
    let running = stage.start_with(client, clients, config, None);
    seconds(100).await;
    for node in ["node-0", "node-1", "node-2"] {
        assert_eq!(range(&stage, node), "", "nobody knows what may arrive at node-1");
        let notes = running.controller.explain(node).await.notes.join(" ");
        assert!(
            notes.contains("1 node without one still to be written to; 1 could not"),
            "{notes}"
        );
    }
    assert!(touches(&stage).len() < 20, "it is not hammered");
    seconds(30).await;
    assert_ne!(range(&stage, "node-0"), "");
    assert_ne!(range(&stage, "node-0"), range(&stage, "node-2"));
    assert!(stage.cluster.reasons("node-1").contains(&"CIDRFenceFailed".to_owned()));
    let notes = running.controller.explain("node-0").await.notes.join(" ");
    assert!(!notes.contains("pod range"), "{notes}");
    running.end().await;
}

/// Under every fault of the fence's writes: it opens, and no CIDR is assigned twice.
#[tokio::test(start_paused = true)]
async fn a_fence_opens_despite_every_kind_of_write_error() {
    let kinds: [fn(&mut cluster_fake::ClientFaults); 5] = [
        |faults| faults.conflict_every = 2,
        |faults| faults.lose_answer_every = 2,
        |faults| faults.unreadable_every = 1,
        |faults| faults.away = true,
        |faults| faults.hangs = true,
    ];
    for (number, turn) in kinds.into_iter().enumerate() {
        let stage = Stage::with_nodes(20);
        let running = stage.start(ranges(&[("10.1.0.0/18", 24)], &[]));
        seconds(0).await;
        running.client.faults.turn(turn);
        seconds(20).await;
        running.client.faults.turn(|faults| (faults.away, faults.hangs) = (false, false));
        let all = || (0..20).map(|node| range(&stage, &format!("node-{node}")));
        stage.until("handed out", 60, || all().all(|range| !range.is_empty())).await;
        assert_eq!(all().collect::<std::collections::BTreeSet<_>>().len(), 20, "{number}");
        running.end().await;
    }
}
