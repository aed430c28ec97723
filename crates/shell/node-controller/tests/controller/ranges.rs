//! Pod CIDRs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use node_controller::{ApiClients, ClusterRange, ControllerConfig, RangesConfig};
use pod_model::parse_cidr;
use ports::cluster_api::ObjectPath;
use serde_json::json;

use crate::stage::{Stage, seconds};

pub(crate) fn ranges(cluster: &[(&str, u8)], service: &[&str]) -> ControllerConfig {
    let range = |(text, node_mask): &(&str, u8)| ClusterRange {
        range: parse_cidr(text).expect("a range"),
        node_mask: *node_mask,
    };
    let ranges = RangesConfig {
        cluster: cluster.iter().map(range).collect(),
        service: service.iter().map(|text| parse_cidr(text).expect("a range")).collect(),
    };
    ControllerConfig { ranges: Some(ranges), ..ControllerConfig::default() }
}

fn cidrs(stage: &Stage, count: usize) -> Vec<Vec<String>> {
    (0..count).map(|number| stage.node(&format!("node-{number}")).spec.pod_cidrs).collect()
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_its_own_of_each_family() {
    let stage = Stage::with_nodes(10);
    stage.cluster.edit(&ObjectPath::node("node-3"), |node| {
        node["spec"]["podCIDR"] = json!("10.1.1.0/24");
        node["spec"]["podCIDRs"] = json!(["10.1.1.0/24", "fd00:0:0:1::/64"]);
    });
    let config = ranges(&[("10.1.0.0/16", 24), ("fd00::/48", 64)], &["10.1.0.0/24"]);
    let running = stage.start(config);
    seconds(5).await;
    let all = cidrs(&stage, 10);
    assert!(all.iter().all(|ranges| ranges.len() == 2), "{all:?}");
    let distinct: BTreeSet<&String> = all.iter().flatten().collect();
    assert_eq!(distinct.len(), 20, "{all:?}");
    assert!(!distinct.contains(&"10.1.0.0/24".to_owned()), "the service range is left out");
    assert_eq!(all[3], ["10.1.1.0/24", "fd00:0:0:1::/64"]);
    assert_eq!(stage.node("node-0").spec.pod_cidr, all[0][0]);
    let labels = [("clusterCIDR", "10.1.0.0/16")];
    let usage = running.metric("node_ipam_controller_cidrset_usage_cidrs", &labels);
    assert_eq!(usage, Some(11.0 / 256.0));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_range_is_an_event_and_a_deleted_node_frees_its_range() {
    let stage = Stage::with_nodes(3);
    let running = stage.start(ranges(&[("10.1.0.0/23", 24)], &[]));
    seconds(5).await;
    let without: Vec<String> = (0..3)
        .map(|number| format!("node-{number}"))
        .filter(|name| stage.node(name).spec.pod_cidrs.is_empty())
        .collect();
    let [without] = without.as_slice() else { panic!("{without:?}") };
    let events = stage.cluster.events();
    let found = events.iter().find(|event| event.reason == "CIDRNotAvailable").expect("told");
    assert_eq!((&found.about.name, found.component.as_str()), (without, "cidrAllocator"));
    let other = if without == "node-0" { "node-1" } else { "node-0" };
    let freed = stage.node(other).spec.pod_cidrs;
    stage.cluster.remove(&ObjectPath::node(other));
    seconds(3).await;
    assert_eq!(stage.node(without).spec.pod_cidrs, freed);
    running.end().await;
}

/// A response that does not parse may be a success: the CIDR stays allocated.
#[tokio::test(start_paused = true)]
async fn a_range_with_an_unreadable_answer_stays_allocated() {
    let stage = Stage::with_nodes(2);
    let client = stage.cluster.client("one");
    client.faults.turn(|faults| {
        faults.latency = Duration::from_secs(4);
        faults.unreadable_every = 1;
    });
    let clients = ApiClients::one(Arc::new(client.clone()));
    let config = ranges(&[("10.1.0.0/23", 24)], &[]);
    let running = stage.start_with(client, clients, config, None);
    seconds(1).await;
    // Another node's event precedes those of the two writes, and all are late.
    running.client.faults.turn(|faults| faults.silent_watches = true);
    stage.nodes.join("node-2", &json!({}));
    stage.until("written", 20, || cidrs(&stage, 2).iter().all(|it| it.len() == 1)).await;
    seconds(1).await;
    running.client.faults.turn(|faults| faults.silent_watches = false);
    seconds(120).await;
    let all = cidrs(&stage, 3);
    let distinct: BTreeSet<&String> = all.iter().flatten().collect();
    assert_eq!(distinct.len(), 2, "{all:?}");
    assert_eq!(all[2], [] as [&str; 0], "no range is left");
    assert!(stage.cluster.reasons("node-2").contains(&"CIDRNotAvailable".to_owned()));
    for node in ["node-0", "node-1"] {
        let reasons = stage.cluster.reasons(node);
        assert!(!reasons.contains(&"CIDRAssignmentFailed".to_owned()), "{node}: {reasons:?}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn conflicting_and_invalid_ranges_are_events_and_block_no_other_node() {
    let stage = Stage::with_nodes(5);
    for (node, cidr) in
        [("node-0", "10.1.7.0/24"), ("node-1", "10.1.7.0/24"), ("node-2", "all of them")]
    {
        stage.cluster.edit(&ObjectPath::node(node), |node| {
            node["spec"]["podCIDR"] = json!(cidr);
            node["spec"]["podCIDRs"] = json!([cidr]);
        });
    }
    let running = stage.start(ranges(&[("10.1.0.0/16", 24)], &[]));
    seconds(5).await;
    assert_eq!(stage.node("node-3").spec.pod_cidrs.len(), 1);
    assert_eq!(stage.node("node-4").spec.pod_cidrs.len(), 1);
    assert_eq!(stage.node("node-2").spec.pod_cidrs, ["all of them"]);
    let found: Vec<String> = ["node-0", "node-1", "node-2"]
        .into_iter()
        .flat_map(|node| stage.cluster.reasons(node))
        .filter(|reason| reason == "CIDRConflict")
        .collect();
    assert_eq!(found.len(), 2, "one of the two, and the one that is no range");
    running.end().await;
}

/// It is in the list, though it does not parse: it exists, and so does its pod CIDR.
#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_unreadable_keeps_its_range() {
    let stage = Stage::with_nodes(2);
    let running = stage.start(ranges(&[("10.1.0.0/23", 24)], &[]));
    stage.until("handed out", 10, || cidrs(&stage, 2).iter().all(|it| it.len() == 1)).await;
    let had = stage.node("node-0").spec.pod_cidrs;
    stage.cluster.edit(&ObjectPath::node("node-0"), |node| {
        node["spec"]["unschedulable"] = json!("maybe");
    });
    stage.cluster.compact();
    seconds(2).await;
    stage.nodes.join("node-2", &json!({}));
    let found = || stage.cluster.reasons("node-2");
    stage.until("none is left", 10, || found().contains(&"CIDRNotAvailable".to_owned())).await;
    assert_eq!(stage.node("node-2").spec.pod_cidrs, [] as [&str; 0], "node-0 has {had:?}");
    assert!(!stage.cluster.reasons("node-0").contains(&"RemovingNode".to_owned()));
    // A node that is truly gone leaves it to a waiting node.
    stage.cluster.remove(&ObjectPath::node("node-0"));
    stage.cluster.compact();
    stage.until("handed on", 10, || stage.node("node-2").spec.pod_cidrs == had).await;
    running.end().await;
}

/// Its pod CIDR is unknown: until it parses or is gone, no other node gets one.
#[tokio::test(start_paused = true)]
async fn no_range_is_handed_out_beside_a_listed_node_that_cannot_be_read() {
    for goes in [false, true] {
        let stage = Stage::with_nodes(3);
        let odd = ObjectPath::node("node-0");
        stage.cluster.edit(&odd, |node| {
            node["spec"]["podCIDR"] = json!("10.1.0.0/24");
            node["spec"]["podCIDRs"] = json!(["10.1.0.0/24"]);
            node["spec"]["unschedulable"] = json!("maybe");
        });
        let running = stage.start(ranges(&[("10.1.0.0/23", 24)], &[]));
        seconds(30).await;
        // A node that joins meanwhile waits as the others do.
        stage.nodes.join("node-3", &json!({}));
        seconds(30).await;
        let others = || -> Vec<String> {
            let names = ["node-1", "node-2", "node-3"].into_iter();
            names.flat_map(|name| stage.node(name).spec.pod_cidrs).collect()
        };
        assert_eq!(others(), [] as [&str; 0]);
        for node in ["node-1", "node-3"] {
            let why = running.controller.explain(node).await;
            let found = |note: &String| note.contains("cannot be read") && note.contains("node-0");
            assert!(why.notes.iter().any(found), "{why}");
        }
        let why = running.controller.explain("node-0").await;
        assert!(why.outlook.contains("cannot read"), "{why}");
        let expected: &[&str] = if goes {
            stage.cluster.remove(&odd);
            &["10.1.0.0/24", "10.1.1.0/24"]
        } else {
            stage.cluster.edit(&odd, |node| node["spec"]["unschedulable"] = json!(false));
            &["10.1.1.0/24"]
        };
        stage.until("handed out", 20, || others().len() == expected.len()).await;
        seconds(5).await;
        let mut handed_out = others();
        handed_out.sort();
        assert_eq!(handed_out, expected, "it goes: {goes}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_conflicts_allocate_no_range_twice() {
    for (conflict_every, lose_answer_every) in [(2, 0), (0, 2), (3, 2)] {
        let stage = Stage::with_nodes(30);
        let running = stage.start(ranges(&[("10.1.0.0/18", 24)], &[]));
        running.client.faults.turn(|faults| {
            faults.conflict_every = conflict_every;
            faults.lose_answer_every = lose_answer_every;
        });
        seconds(60).await;
        let all: Vec<String> = cidrs(&stage, 30).into_iter().flatten().collect();
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (30, 30), "{conflict_every} {lose_answer_every}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_about_to_go_gets_none() {
    let stage = Stage::with_nodes(3);
    let until = stage.cluster.wall().to_seconds_text();
    let ends = |name: &str| {
        stage.cluster.edit(&ObjectPath::node(name), |node| {
            node["metadata"]["deletionTimestamp"] = json!(until);
            node["metadata"]["finalizers"] = json!(["example.com/slow"]);
        });
    };
    ends("node-1");
    let running = stage.start(ranges(&[("10.1.0.0/23", 24)], &[]));
    seconds(30).await;
    let has: Vec<bool> = cidrs(&stage, 3).iter().map(|ranges| !ranges.is_empty()).collect();
    assert_eq!(has, [true, false, true]);
    // Nor does it block those that wait.
    for name in ["node-a", "node-z"] {
        stage.nodes.join(name, &json!({}));
    }
    seconds(5).await;
    assert_eq!(stage.cluster.reasons("node-a"), ["RegisteredNode", "CIDRNotAvailable"]);
    ends("node-a");
    seconds(5).await;
    stage.cluster.remove(&ObjectPath::node("node-0"));
    stage.until("served", 5, || !stage.node("node-z").spec.pod_cidrs.is_empty()).await;
    assert!(stage.node("node-a").spec.pod_cidrs.is_empty());
    running.end().await;
}
