//! Requests as the API's documentation writes them.

use super::*;

fn patch(kind: PatchKind, subresource: Option<&'static str>) -> Patch {
    Patch { kind, subresource: subresource.map(Into::into), body: b"{}".to_vec() }
}

#[test]
fn requests_have_the_expected_paths_and_queries() {
    let node = ObjectPath::node("worker-1");
    let lease = ObjectPath::lease("kube-node-lease", "worker-1");
    let pods =
        ObjectSelector { fields: "spec.nodeName=a,status.phase!=b".into(), ..Default::default() };
    let table = [
        (ApiRequest::read(&node), "GET", "/api/v1/nodes/worker-1"),
        (
            ApiRequest::read(&lease),
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1",
        ),
        (
            ApiRequest::create(&lease, vec![], "me"),
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?fieldManager=me",
        ),
        (
            ApiRequest::create_subresource(&ObjectPath::pod("a", "b"), "eviction", vec![], "me"),
            "POST",
            "/api/v1/namespaces/a/pods/b/eviction?fieldManager=me",
        ),
        (
            ApiRequest::create_subresource(
                &ObjectPath::service_account("a", "default"),
                "token",
                vec![],
                "me",
            ),
            "POST",
            "/api/v1/namespaces/a/serviceaccounts/default/token?fieldManager=me",
        ),
        (
            ApiRequest::patch(&node, patch(PatchKind::StrategicMerge, Some("status")), "me"),
            "PATCH",
            "/api/v1/nodes/worker-1/status?fieldManager=me",
        ),
        (
            ApiRequest::patch(&node, patch(PatchKind::Apply { force: true }, None), "me"),
            "PATCH",
            "/api/v1/nodes/worker-1?fieldManager=me&force=true",
        ),
        (
            Ok(ApiRequest::list(Resource::PODS, &pods, 500, Some("a b+c/d="))),
            "GET",
            "/api/v1/pods?fieldSelector=spec.nodeName%3Da%2Cstatus.phase%21%3Db&limit=500\
             &continue=a%20b%2Bc%2Fd%3D",
        ),
        (
            Ok(ApiRequest::watch(Resource::LEASES, &ObjectSelector::in_namespace("x"), "12", 300)),
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/x/leases?watch=true\
             &allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=12",
        ),
    ];
    for (request, method, target) in table {
        let request = request.expect("a request");
        assert_eq!((request.method.as_str(), request.target.as_str()), (method, target));
    }
}

#[test]
fn each_patch_has_its_content_type() {
    let table = [
        (PatchKind::Merge, "application/merge-patch+json"),
        (PatchKind::StrategicMerge, "application/strategic-merge-patch+json"),
        (PatchKind::Json, "application/json-patch+json"),
        (PatchKind::Apply { force: false }, "application/apply-patch+yaml"),
    ];
    for (kind, expected) in table {
        let request = ApiRequest::patch(&ObjectPath::node("n"), patch(kind, None), "me");
        assert_eq!(request.map(|request| request.content_type), Ok(expected));
    }
}

#[test]
fn a_name_cannot_escape_its_path_segment() {
    let traversal = ObjectPath::pod("default", "../../nodes/x?dryRun=All#");
    let request = ApiRequest::read(&traversal).expect("a request");
    assert_eq!(
        request.target,
        "/api/v1/namespaces/default/pods/..%2F..%2Fnodes%2Fx%3FdryRun%3DAll%23"
    );
    for (namespace, name) in [("default", ".."), ("default", "."), ("default", ""), ("..", "x")] {
        let refused = ApiRequest::delete(&ObjectPath::pod(namespace, name), &Deletion::default());
        assert!(matches!(refused, Err(ClusterApiError::Refused { .. })), "{namespace}/{name}");
        let path = ObjectPath::pod("default", "x");
        let refused = ApiRequest::create_subresource(&path, name, vec![], "me");
        assert_eq!(refused.is_err(), name != "x", "{name}");
    }
}

#[test]
fn a_deletion_carries_its_preconditions() {
    let pod = ObjectPath::pod("default", "web");
    let plain = ApiRequest::delete(&pod, &Deletion::default()).expect("a request");
    assert_eq!(plain.body, br#"{"apiVersion":"v1","kind":"DeleteOptions"}"#);
    let deletion = Deletion {
        uid: Some("u".into()),
        resource_version: Some("7".into()),
        grace_seconds: Some(0),
    };
    let full = ApiRequest::delete(&pod, &deletion).expect("a request");
    let body: serde_json::Value = serde_json::from_slice(&full.body).expect("JSON");
    assert_eq!(body["preconditions"], serde_json::json!({"uid": "u", "resourceVersion": "7"}));
    assert_eq!(body["gracePeriodSeconds"], 0);
    assert_eq!(full.description, "DELETE pods/default/web");
}
