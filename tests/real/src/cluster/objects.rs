//! Short ways to write pods and to read their statuses.
//!
//! Rule: what is read may be missing; then it is null, which equals nothing that a test expects.

use node_testkit::images;
use serde_json::{Value, json};

/// A container named `main` that runs a shell script.
pub fn shell(script: &str) -> Value {
    json!({
        "name": "main",
        "image": images::BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    })
}

/// A pod of this specification. Without a grace period of its own it gets a short one: a shell as
/// the first process of a container ignores SIGTERM.
pub fn pod_object(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["terminationGracePeriodSeconds"].is_null() {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// A condition of an object, or null.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

/// The status of one container of any kind, or null.
pub fn container_status<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let all = lists.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
    all.into_iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

/// The state of one container.
pub fn container_state<'a>(pod: &'a Value, name: &str) -> &'a Value {
    &container_status(pod, name)["state"]
}

/// Why a container waits; empty when it does not.
pub fn waiting_reason<'a>(pod: &'a Value, name: &str) -> &'a str {
    container_state(pod, name)["waiting"]["reason"].as_str().unwrap_or_default()
}

pub fn restart_count(pod: &Value, name: &str) -> u64 {
    container_status(pod, name)["restartCount"].as_u64().unwrap_or_default()
}
