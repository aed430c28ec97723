//! What a CSI driver changes of the Node and of the CSINode: objects in, patches out.
//!
//! Rule: a patch holds the version of the object that it was computed from, so that two writers
//! cannot undo each other; entries and fields of others are kept as they are. No patch where nothing
//! would change.
//!
//! upstream: pkg/volume/csi/nodeinfomanager/nodeinfomanager.go

use std::collections::BTreeSet;

use ports::plugins::CsiNodeInfo;
use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// In-tree volume plugins that are CSI drivers since then, sorted.
// upstream: pkg/volume/csi/csi_plugin.go (migratedPlugins)
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,\
     kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,\
     kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";

/// A new CSINode of this node.
pub fn new_csi_node(node_name: &str, node_uid: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": node_name,
            "annotations": { MIGRATED: MIGRATED_PLUGINS },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid }
            ],
        },
        "spec": { "drivers": [] },
    })
}

/// Whether the CSINode belongs to the node with this UID, and not to an earlier one of its name.
pub fn is_owned(csi_node: &Value, node_name: &str, node_uid: &str) -> bool {
    let owners = csi_node.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        owner["kind"] == "Node" && owner["name"] == node_name && owner["uid"] == node_uid
    })
}

/// Marks the in-tree plugins as migrated.
pub fn migration_patch(csi_node: &Value) -> Option<Value> {
    let listed = csi_node["metadata"]["annotations"][MIGRATED].as_str().unwrap_or_default();
    let listed: BTreeSet<&str> = listed.split(',').collect();
    let wanted: BTreeSet<&str> = MIGRATED_PLUGINS.split(',').collect();
    let patch = json!({ "metadata": { "annotations": { MIGRATED: MIGRATED_PLUGINS } } });
    (listed != wanted).then(|| with_version(patch, csi_node))
}

/// The node id and the topology labels of a driver. An error where a label has another value.
pub fn node_patch(node: &Value, driver: &str, info: &CsiNodeInfo) -> Result<Option<Value>, String> {
    if info.node_id.is_empty() {
        return Err("the driver's node ID must not be empty".to_owned());
    }
    let mut ids = node_ids(node)?;
    let mut changes = Map::new();
    if ids.get(driver) != Some(&Value::String(info.node_id.clone())) {
        ids.insert(driver.to_owned(), info.node_id.clone().into());
        changes
            .insert("annotations".to_owned(), json!({ NODE_ID: Value::Object(ids).to_string() }));
    }
    let labels = &node["metadata"]["labels"];
    let mut added = Map::new();
    for (key, value) in &info.topology {
        match labels[key].as_str() {
            Some(existing) if existing != value => {
                return Err(format!(
                    "detected topology value collision: driver reported {key:?}:{value:?} but \
                     existing label is {key:?}:{existing:?}"
                ));
            }
            Some(_) => {}
            None => {
                added.insert(key.clone(), value.clone().into());
            }
        }
    }
    if !added.is_empty() {
        changes.insert("labels".to_owned(), Value::Object(added));
    }
    let is_changed = !changes.is_empty();
    Ok(is_changed.then(|| with_version(json!({ "metadata": changes }), node)))
}

/// Takes the driver's node id out. Labels stay, as other drivers may use them.
pub fn node_patch_without(node: &Value, driver: &str) -> Result<Option<Value>, String> {
    let mut ids = node_ids(node)?;
    if ids.remove(driver).is_none() {
        return Ok(None);
    }
    let text = if ids.is_empty() { Value::Null } else { Value::Object(ids).to_string().into() };
    Ok(Some(with_version(json!({ "metadata": { "annotations": { NODE_ID: text } } }), node)))
}

/// Node ids by driver.
fn node_ids(node: &Value) -> Result<Map<String, Value>, String> {
    match node["metadata"]["annotations"][NODE_ID].as_str() {
        None | Some("") => Ok(Map::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            format!("failed to parse the node's {NODE_ID:?} annotation value ({text:?}): {error}")
        }),
    }
}

/// The driver's entry in the CSINode.
pub fn csi_node_patch(csi_node: &Value, driver: &str, info: &CsiNodeInfo) -> Option<Value> {
    let keys: BTreeSet<&String> = info.topology.keys().collect();
    let count = (info.max_volumes > 0).then(|| info.max_volumes.min(i32::MAX.into()));
    let is_same = |entry: &Value| {
        let listed = entry["topologyKeys"].as_array().into_iter().flatten();
        let listed: BTreeSet<&str> = listed.filter_map(Value::as_str).collect();
        entry["nodeID"] == info.node_id.as_str()
            && listed == keys.iter().map(|key| key.as_str()).collect()
            && entry["allocatable"]["count"].as_i64() == count
    };
    let (own, mut others) = split(csi_node, driver);
    if own.iter().any(is_same) {
        return None;
    }
    let mut entry = json!({ "name": driver, "nodeID": info.node_id, "topologyKeys": keys });
    if let Some(count) = count {
        entry["allocatable"] = json!({ "count": count });
    }
    others.push(entry);
    Some(with_version(json!({ "spec": { "drivers": others } }), csi_node))
}

/// Takes the driver's entry out of the CSINode.
pub fn csi_node_patch_without(csi_node: &Value, driver: &str) -> Option<Value> {
    let (own, others) = split(csi_node, driver);
    let patch = || with_version(json!({ "spec": { "drivers": others } }), csi_node);
    (!own.is_empty()).then(patch)
}

/// The driver's entries, and the others.
fn split(csi_node: &Value, driver: &str) -> (Vec<Value>, Vec<Value>) {
    let drivers = csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
    drivers.into_iter().partition(|entry| entry["name"] == driver)
}

/// The patch fails where the object has changed since.
fn with_version(mut patch: Value, object: &Value) -> Value {
    patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
    patch
}
