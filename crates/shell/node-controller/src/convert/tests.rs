//! API objects are read correctly, and round-trip.

use node_health::health::UnknownReason;
use serde_json::json;

use super::*;

fn node(value: Value) -> Node {
    serde_json::from_value(value).expect("a node")
}

#[test]
fn a_node_without_anything_has_facts() {
    let facts = node_facts(&node(json!({})), 3);
    assert_eq!(facts.version, 3);
    assert_eq!(facts.conditions, Conditions::default());
    assert!(facts.taints.is_empty() && facts.label_fixes.is_empty());
    assert_eq!(ranges(&node(json!({}))), [] as [&str; 0]);
    assert_eq!(ranges(&node(json!({"spec": {"podCIDR": "10.0.0.0/24"}}))), ["10.0.0.0/24"]);
}

#[test]
fn taints_come_back_as_they_were_and_new_ones_get_the_wall_s_time() {
    let list: Vec<NodeTaint> = serde_json::from_value(json!([
        {"key": "a/b", "value": "v", "effect": "NoExecute", "timeAdded": "1999-01-01T00:00:00Z"},
        {"key": "c", "effect": "PreferNoSchedule"},
    ]))
    .expect("taints");
    let (known, all) = taints(&list);
    assert!(all);
    let mut wanted = known.clone();
    wanted.push(Taint::new(
        TaintKey::NotReady,
        TaintEffect::NoSchedule,
        Some(RemoteTime::from_nanos(5)),
    ));
    let wall = ApiTime::parse("2026-01-01T00:00:00Z").expect("a time");
    let body: Value =
        serde_json::from_slice(&taints_patch("12", &wanted, &known, wall)).expect("JSON");
    assert_eq!(
        body,
        json!({"metadata": {"resourceVersion": "12"}, "spec": {"taints": [
            {"key": "a/b", "value": "v", "effect": "NoExecute", "timeAdded": "1999-01-01T00:00:00Z"},
            {"key": "c", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule",
             "timeAdded": "2026-01-01T00:00:00Z"},
        ]}})
    );
    let odd: Vec<NodeTaint> =
        serde_json::from_value(json!([{"key": "a", "effect": "Whenever"}])).expect("taints");
    assert_eq!(taints(&odd), (Vec::new(), false));
}

#[test]
fn unknown_keeps_the_heartbeat_and_changes_now() {
    let heartbeat = ApiTime::parse("2025-12-31T23:59:00Z").expect("a time");
    let condition = NodeConditionFacts {
        status: ConditionState::Unknown,
        heartbeat: RemoteTime::from_nanos(heartbeat.nanos()),
        transition: RemoteTime::from_nanos(77),
    };
    let write =
        ConditionWrite { kind: ConditionKind::Ready, because: UnknownReason::Stopped, condition };
    let wall = ApiTime::parse("2026-01-01T00:00:00Z").expect("a time");
    let body: Value = serde_json::from_slice(&conditions_patch("9", &[write], wall)).expect("JSON");
    let expected = json!({
        "type": "Ready",
        "status": "Unknown",
        "lastHeartbeatTime": "2025-12-31T23:59:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    });
    assert_eq!(body["status"]["conditions"], json!([expected]));
    assert_eq!(body["metadata"]["resourceVersion"], "9");
}

#[test]
fn a_toleration_of_an_unknown_effect_tolerates_nothing() {
    let read = |value: Value| toleration(&serde_json::from_value(value).expect("a toleration"));
    assert_eq!(read(json!({"operator": "Exists", "effect": "Whenever"})).operator, Operator::Other);
    let all = read(json!({"operator": "Exists"}));
    assert_eq!(
        (all.key, all.operator, all.effect, all.seconds),
        (None, Operator::Exists, None, None)
    );
    let keys: Vec<String> =
        [json!([{"key": "a", "value": "b"}]), json!([{"key": "ab"}]), json!([])]
            .into_iter()
            .map(|list| {
                let mut key = "what was here before".to_owned();
                let list: Vec<_> = serde_json::from_value(list).expect("a list");
                tolerations_key(&list, &mut key);
                key
            })
            .collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2], "{keys:?}");
}

#[test]
fn a_range_takes_the_fence_away() {
    let read = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).expect("JSON");
    assert_eq!(
        read(fence_patch("12", "now/1")),
        json!({"metadata": {
            "resourceVersion": "12", "annotations": {"keelson/range-fence": "now/1"},
        }})
    );
    assert_eq!(
        read(ranges_patch("13", &["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()])),
        json!({
            "metadata": {"resourceVersion": "13", "annotations": {"keelson/range-fence": null}},
            "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]},
        })
    );
}
