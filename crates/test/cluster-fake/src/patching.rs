//! Applies patches to JSON trees as the API server does.

use serde_json::{Map, Value};

/// JSON merge patch: objects are merged, `null` removes, all else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Strategic merge patch, as far as nodes and pods need it: conditions merge by their type.
pub(crate) fn strategic_merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Array(items) if key == "conditions" => {
                merge_by_type(target.entry(key.clone()).or_insert(Value::Null), items);
            }
            _ => strategic_merge(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

fn merge_by_type(target: &mut Value, items: &[Value]) {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(target) = target else { return };
    for item in items {
        let same = target.iter_mut().find(|known| known.get("type") == item.get("type"));
        match same {
            Some(known) => strategic_merge(known, item),
            None => target.push(item.clone()),
        }
    }
}
