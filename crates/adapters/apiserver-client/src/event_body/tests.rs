//! Events compared with what upstream's recorder writes.

use ports::cluster_api::ObjectReference;

use super::*;

fn event(name: &str) -> ClusterEvent {
    ClusterEvent {
        about: ObjectReference {
            kind: "Node".into(),
            name: name.into(),
            uid: "u".into(),
            ..Default::default()
        },
        kind: ClusterEventType::Normal,
        reason: "NodeNotReady".into(),
        message: "Node n status is now: NodeNotReady".into(),
        component: "node-controller".into(),
        host: String::new(),
        at: ApiTime::from_nanos(0x1234_5678_9abc_def0),
    }
}

#[test]
fn event_bodies_match_the_upstream_recorder() {
    let (namespace, name, body) = event_body(&event("n"));
    assert_eq!((namespace.as_str(), name.as_str()), ("default", "n.123456789abcdef0"));
    let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["involvedObject"], json!({"kind": "Node", "name": "n", "uid": "u"}));
    assert_eq!(body["source"], json!({"component": "node-controller"}));
    assert_eq!((body["count"].as_u64(), body["type"].as_str()), (Some(1), Some("Normal")));
    assert_eq!(body["firstTimestamp"], body["lastTimestamp"]);
    assert_eq!(body["firstTimestamp"], "2011-07-27T12:07:47Z");
    let again = Repetition { count: 3, last: ApiTime::from_nanos(0), message: None };
    assert_eq!(repetition(again), br#"{"count":3,"lastTimestamp":"1970-01-01T00:00:00Z"}"#);
    assert_eq!(
        repetition(Repetition { message: Some("m"), ..again }),
        br#"{"count":3,"lastTimestamp":"1970-01-01T00:00:00Z","message":"m"}"#
    );
}

#[test]
fn object_names_that_are_invalid_in_event_names_are_sanitized() {
    for (about, expected) in [
        ("system:node:n", "systemnoden."),
        ("A_B", "event."),
        ("", "event."),
        ("a..b", "event."),
        ("-n.", "n."),
    ] {
        let (_, name, _) = event_body(&event(about));
        assert!(name.starts_with(expected), "{about}: {name}");
    }
    let (_, name, _) = event_body(&event(&"a".repeat(253)));
    assert!(name.len() <= 253);
}
