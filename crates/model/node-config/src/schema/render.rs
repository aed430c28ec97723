//! The document form of a settled tree: which fields are written and which are omitted.
//!
//! The rule it keeps: exactly what the published Go type writes, so an empty list is omitted and a
//! zero duration is not. Merging drop-ins starts from this form, so a default can fill in again
//! what is omitted here.

use std::collections::BTreeMap;

use super::check::is_zero;
use super::{FieldKind, Presence, SchemaField};
use crate::document::{Node, Value};

/// The tree without omitted fields; origins stay.
pub fn document_form(node: &Node, fields: &[SchemaField]) -> Node {
    let Value::Map(entries) = &node.value else { return node.clone() };
    let mut written = BTreeMap::new();
    for field in fields {
        let Some(value) = entries.get(field.name) else { continue };
        if field.presence == Presence::ZeroIsAbsent && is_zero(&value.value) {
            continue;
        }
        written.insert(field.name.to_owned(), child_form(value, field.kind));
    }
    Node::new(Value::Map(written), node.origin.clone())
}

fn child_form(node: &Node, kind: FieldKind) -> Node {
    match (kind, &node.value) {
        (FieldKind::Object(fields), _) => document_form(node, fields),
        (FieldKind::List(inner), Value::List(items)) => {
            let items = items.iter().map(|item| child_form(item, *inner)).collect();
            Node::new(Value::List(items), node.origin.clone())
        }
        _ => node.clone(),
    }
}
