//! Subresources that are created: a pod's binding and eviction, a service account's token.
//!
//! Rule: as the API server, as far as our clients can see: a pod is bound once, an eviction is a
//! deletion with the options given, a token names its service account. Knows no disruption budgets;
//! faults of the client stand for them.

use ports::ClusterApiError;
use ports::cluster_api::{Deletion, ObjectPath};
use serde_json::{Value, json};

use crate::client::refused;
use crate::cluster::{FakeCluster, named};

pub(crate) fn create_subresource(
    cluster: &FakeCluster,
    path: &ObjectPath,
    subresource: &str,
    mut body: Value,
) -> Result<Value, ClusterApiError> {
    let success =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    match (path.resource.plural, subresource) {
        ("pods", "binding") => bind(cluster, path, &body).map(|()| success),
        ("pods", "eviction") => {
            cluster.delete(path, &deletion(&body["deleteOptions"]))?;
            Ok(success)
        }
        ("serviceaccounts", "token") => {
            let account = cluster.read(path)?;
            let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
            let namespace = path.namespace.as_deref().unwrap_or_default();
            let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
            let expires = cluster.wall_in(std::time::Duration::from_secs(seconds.unsigned_abs()));
            body["status"] = json!({
                "token": format!("token of {namespace}/{} {uid}", path.name),
                "expirationTimestamp": expires.to_seconds_text(),
            });
            Ok(body)
        }
        (plural, other) => Err(refused(path, &format!("no subresource {other} of {plural}"))),
    }
}

fn bind(cluster: &FakeCluster, path: &ObjectPath, binding: &Value) -> Result<(), ClusterApiError> {
    let target = &binding["target"]["name"];
    if target.as_str().is_none_or(str::is_empty) {
        return Err(refused(path, "target.name: required"));
    }
    let uid = binding["metadata"]["uid"].as_str();
    let bound = cluster.write(path, (uid, None), |pod| {
        if pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            let message = "the pod is assigned to a node already".to_owned();
            return Err(ClusterApiError::Conflict { request: named(path), message });
        }
        pod["spec"]["nodeName"] = target.clone();
        Ok(())
    });
    bound.map(drop)
}

fn deletion(options: &Value) -> Deletion {
    let precondition = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
    Deletion {
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        grace_seconds: options["gracePeriodSeconds"].as_i64(),
    }
}
