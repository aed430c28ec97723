//! Pods as an API server sends them.

use serde_json::json;

use super::ApiPod;

#[test]
fn a_pod_is_decoded_with_its_status() {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u-1", "resourceVersion": "7",
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": {
            "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "cpu": "1" } } }],
            "fieldOfALaterVersion": { "a": 1 },
        },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": null }],
            "containerStatuses": [{ "name": "c", "restartCount": 2, "state": {}, "lastState": {} }],
        },
    });
    let read: ApiPod = serde_json::from_value(object).expect("a pod");
    assert_eq!(&*read.pod.metadata.name, "web");
    assert_eq!(read.pod.spec.containers.len(), 1);
    assert_eq!(read.status.conditions.len(), 1);
    let restarts = read.status.container_statuses.iter().map(|each| each.restart_count);
    assert_eq!(restarts.collect::<Vec<_>>(), [2]);
}

#[test]
fn a_pod_without_a_status_has_an_empty_one() {
    let read: ApiPod =
        serde_json::from_value(json!({ "metadata": { "name": "a" } })).expect("a pod");
    assert_eq!(*read.status, pod_model::pod::status::PodStatus::default());
}

#[test]
fn a_mismatch_names_the_field() {
    let table = [
        json!({ "metadata": { "name": 1 } }),
        json!({ "metadata": { "name": "a" }, "status": { "conditions": "none" } }),
        json!([]),
    ];
    for (object, field) in table.into_iter().zip(["name", "conditions", ""]) {
        let read = serde_json::from_value::<ApiPod>(object);
        let why = read.expect_err("a mismatch").to_string();
        assert!(why.contains(&format!("field {field}: expected")), "{why}");
    }
}
