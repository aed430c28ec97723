//! The strategic merge patch that turns one Node into another.
//!
//! Rule: only what differs is in it, and never the spec. Lists without a merge key are replaced whole;
//! so are addresses, whose merge key (the type) is not unique.
//!
//! upstream: staging component-helpers/node/util/status.go

use std::collections::BTreeMap;

use ports::cluster_objects::NodeCondition;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::object::{FullNodeStatus, NodeObject};

/// The body of a PATCH on `status`, or nothing where nothing differs.
pub fn status_patch(before: &NodeObject, after: &NodeObject) -> Option<Value> {
    let mut metadata = Map::new();
    for (field, was, is) in [
        ("labels", &before.metadata.labels, &after.metadata.labels),
        ("annotations", &before.metadata.annotations, &after.metadata.annotations),
    ] {
        put_map(&mut metadata, field, was, is);
    }
    let status = of_status(&before.status, &after.status);
    let mut patch = Map::new();
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    if !status.is_empty() {
        patch.insert("status".to_owned(), Value::Object(status));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn of_status(before: &FullNodeStatus, after: &FullNodeStatus) -> Map<String, Value> {
    let mut patch = Map::new();
    put_map(&mut patch, "capacity", &before.capacity, &after.capacity);
    put_map(&mut patch, "allocatable", &before.allocatable, &after.allocatable);
    put_conditions(&mut patch, before, after);
    if before.addresses != after.addresses {
        let mut addresses: Vec<Value> = after.addresses.iter().map(|one| json!(one)).collect();
        if !before.addresses.is_empty() {
            addresses.push(json!({ "$patch": "replace" }));
        }
        patch.insert("addresses".to_owned(), Value::Array(addresses));
    }
    put_fields(&mut patch, "daemonEndpoints", &before.daemon_endpoints, &after.daemon_endpoints);
    put_fields(&mut patch, "nodeInfo", &before.node_info, &after.node_info);
    put_fields(&mut patch, "features", &before.features, &after.features);
    put_list(&mut patch, "images", &before.images, &after.images);
    put_list(&mut patch, "volumesInUse", &before.volumes_in_use, &after.volumes_in_use);
    put_list(&mut patch, "runtimeHandlers", &before.runtime_handlers, &after.runtime_handlers);
    put_list(&mut patch, "declaredFeatures", &before.declared_features, &after.declared_features);
    patch
}

fn put_conditions(patch: &mut Map<String, Value>, before: &FullNodeStatus, after: &FullNodeStatus) {
    let differ = |condition: &&NodeCondition| !before.conditions.contains(condition);
    let changed: Vec<Value> =
        after.conditions.iter().filter(differ).map(|condition| json!(condition)).collect();
    if changed.is_empty() {
        return;
    }
    let order = after.conditions.iter().map(|condition| json!({ "type": condition.kind }));
    patch.insert("$setElementOrder/conditions".to_owned(), order.collect());
    patch.insert("conditions".to_owned(), Value::Array(changed));
}

/// Keys that differ; those that went are null.
fn put_map<V: Serialize + PartialEq>(
    patch: &mut Map<String, Value>,
    field: &str,
    before: &BTreeMap<String, V>,
    after: &BTreeMap<String, V>,
) {
    let set = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let set = set.map(|(key, value)| (key.clone(), json!(value)));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let entries: Map<String, Value> =
        set.chain(gone.map(|key| (key.clone(), Value::Null))).collect();
    if !entries.is_empty() {
        patch.insert(field.to_owned(), Value::Object(entries));
    }
}

fn put_list<V: Serialize + PartialEq>(
    patch: &mut Map<String, Value>,
    field: &str,
    before: &[V],
    after: &[V],
) {
    if before != after {
        let list = if after.is_empty() { Value::Null } else { json!(after) };
        patch.insert(field.to_owned(), list);
    }
}

/// The fields of a structure that differ.
fn put_fields<V: Serialize>(patch: &mut Map<String, Value>, field: &str, before: &V, after: &V) {
    let fields = |of: &V| match json!(of) {
        Value::Object(fields) => fields.into_iter().collect::<BTreeMap<String, Value>>(),
        _ => BTreeMap::new(),
    };
    put_map(patch, field, &fields(before), &fields(after));
}

#[cfg(test)]
mod tests;
