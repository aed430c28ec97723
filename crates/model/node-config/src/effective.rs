//! The effective configuration, for printing: the document form, and a table of origins.
//!
//! The rule it keeps: the document holds what the reference kubelet shows for the same input, in
//! the order of the published type; the table lists explicit values, and neither the table nor the
//! masked document shows a secret.

use crate::diagnostic::{MASK, Origin, is_secret, masked_text};
use crate::document::{Node, Value, child_path};
use crate::schema::{self, API_VERSION, FieldKind, KIND, KUBELET_CONFIGURATION, SchemaField};

mod write;

#[cfg(test)]
mod tests;

/// A settled tree ready for printing.
#[derive(Debug, Clone)]
pub struct EffectiveConfig {
    tree: Node,
}

/// One line of the table of origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRow {
    pub path: String,
    /// On one line, secrets masked.
    pub value: String,
    pub origin: Origin,
}

impl EffectiveConfig {
    pub(crate) fn of(tree: &Node) -> Self {
        Self { tree: tree.clone() }
    }

    /// The same with every secret replaced.
    #[must_use]
    pub fn masked(mut self) -> Self {
        mask(&mut self.tree, "");
        self
    }

    /// The document as a JSON value: apiVersion, kind and all fields that are serialized.
    pub fn to_value(&self) -> serde_json::Value {
        let mut value = self.document().to_json();
        if let serde_json::Value::Object(entries) = &mut value {
            entries.insert("apiVersion".to_owned(), API_VERSION.into());
            entries.insert("kind".to_owned(), KIND.into());
        }
        value
    }

    pub fn to_yaml(&self) -> String {
        write::yaml(&self.document())
    }

    pub fn to_json(&self) -> String {
        write::json(&self.document())
    }

    fn document(&self) -> Node {
        schema::document_form(&self.tree, KUBELET_CONFIGURATION)
    }

    /// Every value that is not a default, in the order of the published type.
    pub fn explicit_values(&self) -> Vec<OriginRow> {
        let mut rows = Vec::new();
        collect_fields(&self.tree, KUBELET_CONFIGURATION, "", &mut rows);
        rows
    }
}

fn collect_fields(node: &Node, fields: &[SchemaField], path: &str, rows: &mut Vec<OriginRow>) {
    for field in fields {
        if let Some(child) = node.get(field.name) {
            collect(child, field.kind, &child_path(path, field.name), rows);
        }
    }
}

fn collect(node: &Node, kind: FieldKind, path: &str, rows: &mut Vec<OriginRow>) {
    match (kind, &node.value) {
        (FieldKind::Object(fields), Value::Map(_)) => collect_fields(node, fields, path, rows),
        (FieldKind::Map(inner), Value::Map(entries)) if !entries.is_empty() => {
            for (key, child) in entries {
                collect(child, *inner, &child_path(path, key), rows);
            }
        }
        _ if node.origin.is_default() => {}
        _ => {
            let mut shown = node.clone();
            mask(&mut shown, path);
            let value = if is_secret(path) { MASK.to_owned() } else { on_one_line(&shown) };
            rows.push(OriginRow { path: path.to_owned(), value, origin: node.origin.clone() });
        }
    }
}

fn on_one_line(node: &Node) -> String {
    match &node.value {
        Value::String(text) if !text.is_empty() && !text.chars().any(char::is_control) => {
            text.clone()
        }
        _ => node.to_json().to_string(),
    }
}

fn mask(node: &mut Node, path: &str) {
    match &mut node.value {
        Value::Map(entries) => {
            for (key, child) in entries {
                mask(child, &child_path(path, key));
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| mask(item, path)),
        Value::String(text) => *text = masked_text(path, text),
        _ => {}
    }
}
