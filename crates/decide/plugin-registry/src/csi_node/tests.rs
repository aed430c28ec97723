//! Patches as tables.

use super::*;

fn object(mut metadata: Value, drivers: Value) -> Value {
    metadata["resourceVersion"] = "7".into();
    metadata["uid"] = "u".into();
    Value::Object(Map::from_iter([
        ("metadata".to_owned(), metadata),
        ("spec".to_owned(), Value::Object(Map::from_iter([("drivers".to_owned(), drivers)]))),
    ]))
}

fn info(node_id: &str, max_volumes: i64, topology: &[(&str, &str)]) -> CsiNodeInfo {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let topology = topology.iter().map(pair).collect();
    CsiNodeInfo { node_id: node_id.to_owned(), max_volumes, topology }
}

#[test]
fn the_node_gets_id_and_topology_and_keeps_what_others_wrote() {
    let node = |ids: &str| {
        object(json!({ "annotations": { NODE_ID: ids }, "labels": { "zone": "a" } }), json!([]))
    };
    let patch = |annotations: Value, labels: Value| {
        let mut metadata = json!({ "resourceVersion": "7", "uid": "u" });
        for (name, value) in [("annotations", annotations), ("labels", labels)] {
            if !value.is_null() {
                metadata[name] = value;
            }
        }
        Some(json!({ "metadata": metadata }))
    };
    let no = Value::Null;
    let cases = [
        ("", info("n1", 0, &[]), patch(json!({ NODE_ID: r#"{"disks":"n1"}"# }), no.clone())),
        (
            r#"{"files":"f1"}"#,
            info("n1", 0, &[("zone", "a"), ("rack", "3")]),
            patch(json!({ NODE_ID: r#"{"disks":"n1","files":"f1"}"# }), json!({ "rack": "3" })),
        ),
        (r#"{"disks":"n1"}"#, info("n1", 0, &[("zone", "a")]), None),
        (
            r#"{"disks":"old"}"#,
            info("n1", 0, &[]),
            patch(json!({ NODE_ID: r#"{"disks":"n1"}"# }), no),
        ),
    ];
    for (ids, info, expected) in cases {
        assert_eq!(node_patch(&node(ids), "disks", &info), Ok(expected), "{ids}");
    }
    let collision = node_patch(&node(""), "disks", &info("n1", 0, &[("zone", "b")]));
    assert_eq!(
        collision,
        Err(
            "detected topology value collision: driver reported \"zone\":\"b\" but existing label \
             is \"zone\":\"a\""
                .to_owned()
        )
    );
    assert!(node_patch(&node("{"), "disks", &info("n1", 0, &[])).is_err(), "a broken annotation");
    assert!(node_patch(&node(""), "disks", &info("", 0, &[])).is_err(), "no id");
}

#[test]
fn the_node_loses_the_id_of_one_driver() {
    let node = |ids: &str| object(json!({ "annotations": { NODE_ID: ids } }), json!([]));
    let cases = [
        ("", None),
        (r#"{"files":"f"}"#, None),
        (r#"{"disks":"d"}"#, Some(Value::Null)),
        (r#"{"disks":"d","files":"f"}"#, Some(r#"{"files":"f"}"#.into())),
    ];
    for (ids, expected) in cases {
        let patch = node_patch_without(&node(ids), "disks").expect("readable");
        let found = patch.map(|it| it["metadata"]["annotations"][NODE_ID].clone());
        assert_eq!(found, expected, "{ids}");
    }
}

#[test]
fn the_csi_node_has_one_entry_for_each_driver() {
    let files = json!({ "name": "files", "nodeID": "f", "topologyKeys": null, "later": true });
    let disks = json!({
        "name": "disks", "nodeID": "n1", "topologyKeys": ["rack", "zone"],
        "allocatable": { "count": 5 }
    });
    let topology = [("zone", "a"), ("rack", "3")];
    let cases = [
        ("new", json!([files]), info("n1", 5, &topology), Some(json!([files, disks]))),
        ("the same", json!([disks, files]), info("n1", 5, &topology), None),
        (
            "another limit",
            json!([disks, files]),
            info("n1", 6, &topology),
            Some(json!([files, {
                "name": "disks", "nodeID": "n1", "topologyKeys": ["rack", "zone"],
                "allocatable": { "count": 6 }
            }])),
        ),
        (
            "no limit, no topology",
            json!([disks]),
            info("n1", 0, &[]),
            Some(json!([{ "name": "disks", "nodeID": "n1", "topologyKeys": [] }])),
        ),
        (
            "a limit that is none",
            json!(null),
            info("n1", -3, &[]),
            Some(json!([{ "name": "disks", "nodeID": "n1", "topologyKeys": [] }])),
        ),
        (
            "a limit that is too high",
            json!([]),
            info("n1", 1 << 40, &[]),
            Some(json!([{
                "name": "disks", "nodeID": "n1", "topologyKeys": [],
                "allocatable": { "count": 2_147_483_647 }
            }])),
        ),
    ];
    for (name, drivers, info, expected) in cases {
        let patch = csi_node_patch(&object(json!({}), drivers), "disks", &info);
        let version = patch.as_ref().map(|it| it["metadata"]["resourceVersion"].clone());
        assert_eq!(version, expected.as_ref().map(|_| "7".into()), "{name}");
        assert_eq!(patch.map(|it| it["spec"]["drivers"].clone()), expected, "{name}");
    }
    let without = csi_node_patch_without(&object(json!({}), json!([disks, files])), "disks");
    assert_eq!(without.map(|it| it["spec"]["drivers"].clone()), Some(json!([files])));
    assert_eq!(csi_node_patch_without(&object(json!({}), json!([files])), "disks"), None);
}

#[test]
fn a_csi_node_belongs_to_the_node_of_the_same_uid() {
    let own = new_csi_node("worker", "u1");
    let cases = [("worker", "u1", true), ("worker", "u2", false), ("other", "u1", false)];
    for (name, uid, expected) in cases {
        assert_eq!(is_owned(&own, name, uid), expected, "{name} {uid}");
    }
    assert!(!is_owned(&json!({}), "worker", "u1"));
    assert_eq!(migration_patch(&own), None);
    let patch = migration_patch(&object(json!({}), json!([]))).expect("a patch");
    assert_eq!(patch["metadata"]["annotations"][MIGRATED], MIGRATED_PLUGINS);
    let plugins: Vec<&str> = MIGRATED_PLUGINS.split(',').collect();
    assert!(plugins.is_sorted() && plugins.len() == 7, "{plugins:?}");
}
