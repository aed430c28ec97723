//! Watch events and list pages as an API server sends them, and malformed ones.

use ports::cluster_objects::{Lease, Node, Pod, Renewal};

use super::*;

#[test]
fn declared_fields_are_decoded_and_others_are_skipped() {
    let line = br#"{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1",
        "metadata":{"name":"n","uid":"u","resourceVersion":"12","labels":{"a":"b"},
          "annotations":null,"managedFields":[{"x":[1,{"y":"}"}]}],
          "creationTimestamp":"2026-11-15T23:40:25Z"},
        "spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"],"providerID":"p",
          "taints":[{"key":"k","effect":"NoExecute","timeAdded":"2026-11-15T23:40:25Z"}]},
        "status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":null}],
          "images":[{"names":["x"]}]}}}"#;
    let Ok(WatchLine::Applied(node)) = read_line::<Node>(line) else { panic!("not applied") };
    assert_eq!(node.identity().resource_version, "12");
    assert_eq!(node.metadata.labels.get("a").map(String::as_str), Some("b"));
    assert!(node.metadata.annotations.is_empty());
    assert_eq!(node.spec.pod_cidrs, ["10.0.0.0/24"]);
    assert_eq!(
        node.spec.taints[0].time_added.map(ports::ApiTime::nanos),
        Some(1_794_786_025_000_000_000)
    );
    assert_eq!(node.status.conditions[0].kind, "Ready");
    assert_eq!(
        serde_json::to_string(&node.spec.taints[0]).expect("JSON"),
        r#"{"key":"k","effect":"NoExecute","timeAdded":"2026-11-15T23:40:25Z"}"#
    );
}

#[test]
fn bookmarks_and_errors_are_decoded_and_garbage_is_rejected() {
    let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"99"}}}"#;
    let Ok(WatchLine::Bookmark { version }) = read_line::<Pod>(bookmark) else {
        panic!("not a bookmark")
    };
    assert_eq!(version, "99");
    let error = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"old"}}"#;
    let Ok(WatchLine::Failed(status)) = read_line::<Pod>(error) else { panic!("not an error") };
    assert_eq!(status.code, 410);
    for garbage in [&b"garbage"[..], b"{", b"[]", b"{}", b"\xff\xff", br#"{"type":"ADDED"}"#] {
        assert!(read_line::<Pod>(garbage).is_err(), "{garbage:?}");
    }
    let deeply_nested = "[".repeat(100_000);
    assert!(
        read_line::<Pod>(format!("{{\"type\":\"ADDED\",\"object\":{deeply_nested}").as_bytes())
            .is_err()
    );
}

#[test]
fn a_malformed_object_does_not_affect_others_in_the_list() {
    for (event_type, is_deletion) in [("ADDED", false), ("MODIFIED", false), ("DELETED", true)] {
        let object = r#"{"metadata":{"name":"p","namespace":"d","resourceVersion":"5"},
            "spec":{"tolerations":7}}"#;
        let line = format!(r#"{{"type":"{event_type}","object":{object}}}"#);
        let Ok(WatchLine::Unreadable { object, version, deleted, cause }) =
            read_line::<Pod>(line.as_bytes())
        else {
            panic!("not unreadable")
        };
        assert_eq!(
            (object.as_str(), version.as_str(), deleted),
            ("pods/d/p", "5", is_deletion),
            "{event_type}"
        );
        assert!(cause.contains("invalid type"), "{cause}");
    }
    let page = br#"{"metadata":{"resourceVersion":"8","continue":"t"},"items":[
        {"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":7},{"metadata":{"name":"c"}}]}"#;
    let page = read_page::<Renewal>(Bytes::from_static(page)).expect("a page");
    let names: Vec<_> = page.objects.iter().map(|lease| lease.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(page.unreadable[0].object, "leases/b");
    assert_eq!((page.version.as_str(), page.token.as_str()), ("8", "t"));
    let empty = read_page::<Renewal>(Bytes::from_static(
        br#"{"metadata":{"resourceVersion":"8"},"items":null}"#,
    ));
    assert_eq!(empty.expect("a page").objects.len(), 0);
}

#[test]
fn absent_lease_fields_are_written_as_null_so_that_they_are_cleared() {
    let lease: Lease = serde_json::from_str(
        r#"{"spec":{"holderIdentity":"me","renewTime":"2026-11-15T23:40:25.123456Z"}}"#,
    )
    .expect("a lease");
    assert_eq!(
        serde_json::to_string(&lease.spec).expect("JSON"),
        r#"{"holderIdentity":"me","leaseDurationSeconds":null,"acquireTime":null,"renewTime":"2026-11-15T23:40:25.123456Z","leaseTransitions":null}"#
    );
}
