//! The status of a node and the spec of a lease, as the API server has them.

use super::*;
use crate::cluster_objects::{LeaseSpec, NodeTaint, OwnerReference, PodCondition};

/// The text is read and written again: a field under another name would be lost on the way.
fn same<T: serde::de::DeserializeOwned + Serialize>(text: &str) {
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let value: T = serde_json::from_str(text).expect("the type");
    assert_eq!(serde_json::to_value(&value).expect("JSON"), expected);
}

#[test]
fn golden_status_of_a_node() {
    same::<FullNodeStatus>(
        r#"{
          "capacity": {"cpu": "4"},
          "allocatable": {"cpu": "3"},
          "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z",
             "lastTransitionTime": "2020-01-02T00:00:00Z", "reason": "r", "message": "m"}
          ],
          "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
          "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
          "nodeInfo": {
            "machineID": "a", "systemUUID": "b", "bootID": "c", "kernelVersion": "d",
            "osImage": "e", "containerRuntimeVersion": "f", "kubeletVersion": "g",
            "kubeProxyVersion": "h", "operatingSystem": "linux", "architecture": "amd64",
            "swap": {"capacity": 1}
          },
          "images": [{"names": ["i"], "sizeBytes": 2}],
          "volumesInUse": ["v"],
          "runtimeHandlers": [
            {"name": "h", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}}
          ],
          "features": {"supplementalGroupsPolicy": true},
          "declaredFeatures": ["F"]
        }"#,
    );
}

#[test]
fn golden_smaller_objects() {
    same::<NodeTaint>(
        r#"{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2020-01-01T00:00:00Z"}"#,
    );
    same::<PodCondition>(
        r#"{"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z",
            "reason": "r", "message": "m"}"#,
    );
    same::<OwnerReference>(
        r#"{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}"#,
    );
    same::<LeaseSpec>(
        r#"{"holderIdentity": "h", "leaseDurationSeconds": 40,
            "acquireTime": "2020-01-01T00:00:00.000000Z",
            "renewTime": "2020-01-01T00:00:01.000000Z", "leaseTransitions": 1}"#,
    );
}
