//! Defaults: first those that depend on other fields or on feature gates, then the tables'.
//!
//! The rule it keeps: explicit values are never changed, with the two exceptions that Kubernetes
//! makes (a zero in a plain field counts as unset; a negative `podPidsLimit` is -1). The order
//! matters: rules between fields see explicit values, not defaults.

use std::collections::BTreeMap;

use pod_model::{GoDuration, Quantity};

use super::check::{is_zero, zero};
use super::{DefaultRule, FieldKind, KUBELET_CONFIGURATION, Presence, SchemaField};
use crate::diagnostic::Origin;
use crate::document::{Node, Number, Value};

/// The feature gates that two defaults depend on, as they are while the document is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultingGates {
    /// `KubeletCrashLoopBackOffMax`
    pub crash_loop_back_off_max: bool,
    /// `KubeletEnsureSecretPulledImages`
    pub ensure_secret_pulled_images: bool,
}

type MapEntries = BTreeMap<String, Node>;

/// Fills in defaults. The tree must come from `decode`.
pub fn apply_defaults(tree: &mut Node, gates: DefaultingGates) {
    let Value::Map(entries) = &mut tree.value else { return };
    default_report_frequency(entries);
    default_serialize_image_pulls(entries);
    if let Some(Node { value: Value::Number(Number::Integer(limit)), .. }) =
        entries.get_mut("podPidsLimit")
        && *limit < 0
    {
        *limit = -1;
    }
    if gates.ensure_secret_pulled_images {
        let policy = Value::String("NeverVerifyPreloadedImages".to_owned());
        set_if_unset(entries, "imagePullCredentialsVerificationPolicy", policy);
    }
    if gates.crash_loop_back_off_max {
        let back_off = entries
            .entry("crashLoopBackOff".to_owned())
            .or_insert_with(|| by_default(Value::Map(BTreeMap::new())));
        if let Value::Map(inner) = &mut back_off.value {
            let period = "maxContainerRestartPeriod".to_owned();
            inner.entry(period).or_insert_with(|| by_default(Value::String("5m0s".to_owned())));
        }
    }
    fill_from_table(entries, KUBELET_CONFIGURATION);
}

/// With an update frequency but no report frequency, the report frequency is the same.
fn default_report_frequency(entries: &mut MapEntries) {
    let Some(update) = entries.get("nodeStatusUpdateFrequency").cloned() else { return };
    if !is_zero_duration(&update.value) {
        set_if_unset(entries, "nodeStatusReportFrequency", update.value);
    }
}

/// Setting `maxParallelImagePulls` above one turns serialized pulls off.
fn default_serialize_image_pulls(entries: &mut MapEntries) {
    let parallel = matches!(
        entries.get("maxParallelImagePulls").map(|node| &node.value),
        Some(Value::Number(Number::Integer(pulls))) if *pulls >= 2
    );
    if parallel && !entries.contains_key("serializeImagePulls") {
        entries.insert("serializeImagePulls".to_owned(), by_default(Value::Bool(false)));
    }
}

fn set_if_unset(entries: &mut MapEntries, name: &str, value: Value) {
    let unsaid =
        entries.get(name).is_none_or(|node| is_zero(&node.value) || is_zero_duration(&node.value));
    if unsaid {
        entries.insert(name.to_owned(), by_default(value));
    }
}

fn fill_from_table(entries: &mut MapEntries, fields: &[SchemaField]) {
    for field in fields {
        if let FieldKind::Object(inner) = field.kind {
            if field.presence == Presence::Always {
                let object = entries
                    .entry(field.name.to_owned())
                    .or_insert_with(|| by_default(Value::Map(BTreeMap::new())));
                if let Value::Map(entries) = &mut object.value {
                    fill_from_table(entries, inner);
                }
            }
            continue;
        }
        let Some(default) = default_value(field.default) else { continue };
        if entries.get(field.name).is_none_or(|node| is_unset(field, &node.value)) {
            entries.insert(field.name.to_owned(), by_default(default));
        }
    }
}

/// Whether a value counts as unset. Empty lists and maps are explicit.
fn is_unset(field: &SchemaField, value: &Value) -> bool {
    match (field.presence, field.kind) {
        (Presence::Explicit | Presence::Optional, _)
        | (_, FieldKind::List(_) | FieldKind::Map(_)) => false,
        (_, FieldKind::Duration) => is_zero_duration(value),
        (_, FieldKind::DurationOrNanoseconds) => is_zero(value) || is_zero_duration(value),
        _ => is_zero(value),
    }
}

fn is_zero_duration(value: &Value) -> bool {
    matches!(value, Value::String(text) if GoDuration::parse(text).is_ok_and(GoDuration::is_zero))
}

fn default_value(rule: DefaultRule) -> Option<Value> {
    Some(match rule {
        DefaultRule::Zero => return None,
        DefaultRule::Bool(value) => Value::Bool(value),
        DefaultRule::Int(whole) => Value::Number(Number::Integer(whole.into())),
        DefaultRule::Float(number) => Value::Number(Number::Float(number)),
        DefaultRule::Text(text) => Value::String(text.to_owned()),
        DefaultRule::TextList(items) => Value::List(
            items.iter().map(|item| by_default(Value::String((*item).to_owned()))).collect(),
        ),
    })
}

fn by_default(value: Value) -> Node {
    Node::new(value, Origin::Default)
}

/// Reserved memory in a file is rounded up to thousandths. (In drop-ins it is not.)
pub fn round_reserved_memory(tree: &mut Node) {
    let Value::Map(entries) = &mut tree.value else { return };
    let Some(Node { value: Value::List(reservations), .. }) = entries.get_mut("reservedMemory")
    else {
        return;
    };
    for reservation in reservations {
        let Value::Map(entries) = &mut reservation.value else { continue };
        let Some(Node { value: Value::Map(limits), .. }) = entries.get_mut("limits") else {
            continue;
        };
        for limit in limits.values_mut() {
            if let Value::String(text) = &mut limit.value
                && let Ok(quantity) = Quantity::parse(text)
                && let Some(thousandths) = quantity.checked_milli_value()
            {
                let rounded = Quantity::from_milli(thousandths, quantity.format());
                if rounded != quantity {
                    *text = rounded.to_string();
                }
            }
        }
    }
}

/// Sets every absent field that must be present to its zero, so that the tree is complete.
pub fn fill_absent(tree: &mut Node) {
    fill_absent_object(tree, KUBELET_CONFIGURATION);
}

fn fill_absent_object(node: &mut Node, fields: &[SchemaField]) {
    let Value::Map(entries) = &mut node.value else { return };
    for field in fields {
        if field.presence == Presence::Optional && !entries.contains_key(field.name) {
            continue;
        }
        let child =
            entries.entry(field.name.to_owned()).or_insert_with(|| by_default(zero(field.kind)));
        match (field.kind, &mut child.value) {
            (FieldKind::Object(inner), _) => fill_absent_object(child, inner),
            (FieldKind::List(FieldKind::Object(inner)), Value::List(items)) => {
                for item in items {
                    fill_absent_object(item, inner);
                }
            }
            _ => {}
        }
    }
}
