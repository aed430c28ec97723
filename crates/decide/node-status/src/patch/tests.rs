//! Patches of single differences.

use super::*;
use crate::object::{NodeImage, NodeSwap};

type PatchCase = fn(&mut NodeObject);

fn node() -> NodeObject {
    serde_json::from_value(json!({
        "metadata": { "name": "n1", "labels": { "a": "1", "b": "2" }, "annotations": null },
        "spec": { "unschedulable": true },
        "status": {
            "capacity": { "cpu": "2", "vendor.com/gpu": "1" },
            "conditions": [
                { "type": "Other", "status": "True", "lastHeartbeatTime": null },
                { "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-18T00:00:00Z" },
            ],
            "addresses": [{ "type": "Hostname", "address": "n1" }],
            "nodeInfo": { "machineID": "m", "kernelVersion": "6.1" },
            "images": [{ "names": ["x"], "sizeBytes": 1 }],
        },
    }))
    .expect("a node")
}

#[test]
fn a_patch_has_what_differs_and_nothing_else() {
    let rows: [(&str, PatchCase, Value); 8] = [
        (
            "labels",
            |node| {
                node.metadata.labels.remove("a");
                node.metadata.labels.insert("b".to_owned(), "3".to_owned());
            },
            json!({ "metadata": { "labels": { "a": null, "b": "3" } } }),
        ),
        (
            "capacity",
            |node| {
                node.status.capacity.remove("vendor.com/gpu");
            },
            json!({ "status": { "capacity": { "vendor.com/gpu": null } } }),
        ),
        (
            "conditions",
            |node| "False".clone_into(&mut node.status.conditions[1].status),
            json!({ "status": {
                "$setElementOrder/conditions": [{ "type": "Other" }, { "type": "Ready" }],
                "conditions": [{
                    "type": "Ready",
                    "status": "False",
                    "lastHeartbeatTime": "2026-11-18T00:00:00Z",
                    "lastTransitionTime": null,
                    "reason": "",
                    "message": "",
                }],
            } }),
        ),
        (
            "addresses",
            |node| "n2".clone_into(&mut node.status.addresses[0].address),
            json!({ "status": { "addresses": [
                { "type": "Hostname", "address": "n2" },
                { "$patch": "replace" },
            ] } }),
        ),
        (
            "node info",
            |node| node.status.node_info.swap = Some(NodeSwap { capacity: 5 }),
            json!({ "status": { "nodeInfo": { "swap": { "capacity": 5 } } } }),
        ),
        (
            "images",
            |node| node.status.images.push(NodeImage { names: Vec::new(), size_bytes: 2 }),
            json!({ "status": { "images": [
                { "names": ["x"], "sizeBytes": 1 },
                { "names": [], "sizeBytes": 2 },
            ] } }),
        ),
        ("no images", |node| node.status.images.clear(), json!({ "status": { "images": null } })),
        (
            "declared features",
            |node| node.status.declared_features.push("F".to_owned()),
            json!({ "status": { "declaredFeatures": ["F"] } }),
        ),
    ];
    let before = node();
    for (name, change, expected) in rows {
        let mut after = before.clone();
        change(&mut after);
        assert_eq!(status_patch(&before, &after), Some(expected), "{name}");
    }
}

#[test]
fn no_patch_is_sent_without_a_difference_and_never_for_the_spec() {
    let mut after = node();
    assert_eq!(status_patch(&node(), &after), None);
    after.spec.unschedulable = false;
    assert_eq!(status_patch(&node(), &after), None);
}

#[test]
fn first_addresses_are_set_without_a_replacement() {
    let mut before = node();
    before.status.addresses.clear();
    let patch = status_patch(&before, &node()).expect("a patch");
    assert_eq!(
        patch,
        json!({ "status": { "addresses": [{ "type": "Hostname", "address": "n1" }] } })
    );
}
