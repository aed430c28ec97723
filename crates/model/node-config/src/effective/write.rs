//! YAML and JSON text of a document, in the order of the schema.
//!
//! The rule it keeps: whatever is written here reads back as the same document. Strings are quoted
//! unless they are unambiguous.

use std::fmt::Write;

use crate::document::{Node, Value, is_plain_word};
use crate::schema::{API_VERSION, FieldKind, KIND, KUBELET_CONFIGURATION};

const ROOT: FieldKind = FieldKind::Object(KUBELET_CONFIGURATION);

pub(super) fn yaml(document: &Node) -> String {
    let mut text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    yaml_entries(document, ROOT, 0, &mut text);
    text
}

pub(super) fn json(document: &Node) -> String {
    let mut text = format!("{{\n  \"apiVersion\": \"{API_VERSION}\",\n  \"kind\": \"{KIND}\"");
    for (key, child, kind) in entries(document, ROOT) {
        let _ = write!(text, ",\n  {}: ", quoted(key));
        json_node(child, kind, 1, &mut text);
    }
    text.push_str("\n}\n");
    text
}

/// The children of an object in schema order, of a map in the order of its keys.
fn entries(node: &Node, kind: FieldKind) -> Vec<(&str, &Node, FieldKind)> {
    let Value::Map(present) = &node.value else { return Vec::new() };
    match kind {
        FieldKind::Object(fields) => fields
            .iter()
            .filter_map(|field| Some((field.name, present.get(field.name)?, field.kind)))
            .collect(),
        FieldKind::Map(inner) => {
            present.iter().map(|(key, child)| (key.as_str(), child, *inner)).collect()
        }
        _ => Vec::new(),
    }
}

fn item_kind(kind: FieldKind) -> FieldKind {
    match kind {
        FieldKind::List(inner) => *inner,
        other => other,
    }
}

fn yaml_entries(node: &Node, kind: FieldKind, indent: usize, text: &mut String) {
    for (key, child, kind) in entries(node, kind) {
        let _ = write!(text, "{:indent$}{}:", "", word(key));
        yaml_child(child, kind, indent, text);
    }
}

/// The text after a colon.
fn yaml_child(node: &Node, kind: FieldKind, indent: usize, text: &mut String) {
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            text.push('\n');
            yaml_entries(node, kind, indent + 2, text);
        }
        Value::List(items) if !items.is_empty() => {
            text.push('\n');
            yaml_items(items, item_kind(kind), indent, text);
        }
        _ => {
            let _ = writeln!(text, " {}", scalar(node));
        }
    }
}

fn yaml_items(items: &[Node], kind: FieldKind, indent: usize, text: &mut String) {
    for item in items {
        match &item.value {
            Value::Map(entries) if !entries.is_empty() => {
                // The first entry shares its line with the dash.
                let mut block = String::new();
                yaml_entries(item, kind, indent + 2, &mut block);
                let _ = write!(text, "{:indent$}- {}", "", block.trim_start());
            }
            Value::List(inner) if !inner.is_empty() => {
                let mut block = String::new();
                yaml_items(inner, item_kind(kind), indent + 2, &mut block);
                let _ = write!(text, "{:indent$}- {}", "", block.trim_start());
            }
            _ => {
                let _ = writeln!(text, "{:indent$}- {}", "", scalar(item));
            }
        }
    }
}

fn scalar(node: &Node) -> String {
    match &node.value {
        Value::String(text) => word(text),
        Value::List(_) => "[]".to_owned(),
        Value::Map(_) => "{}".to_owned(),
        _ => node.to_json().to_string(),
    }
}

fn word(text: &str) -> String {
    if is_plain_word(text) { text.to_owned() } else { quoted(text) }
}

/// A JSON string that is a YAML string too: YAML has no surrogate pairs, so characters that would
/// need one are written unescaped.
fn quoted(text: &str) -> String {
    let mut result = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => result.push_str("\\\""),
            '\\' => result.push_str("\\\\"),
            ' '..='~' | '\u{10000}'.. => result.push(character),
            other => {
                let _ = write!(result, "\\u{:04x}", u32::from(other));
            }
        }
    }
    result.push('"');
    result
}

fn json_node(node: &Node, kind: FieldKind, depth: usize, text: &mut String) {
    let indent = depth * 2;
    match &node.value {
        Value::Map(present) if !present.is_empty() => {
            text.push('{');
            for (position, (key, child, kind)) in entries(node, kind).into_iter().enumerate() {
                let comma = if position > 0 { "," } else { "" };
                let _ = write!(text, "{comma}\n{:indent$}  {}: ", "", quoted(key));
                json_node(child, kind, depth + 1, text);
            }
            let _ = write!(text, "\n{:indent$}}}", "");
        }
        Value::List(items) if !items.is_empty() => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                let comma = if position > 0 { "," } else { "" };
                let _ = write!(text, "{comma}\n{:indent$}  ", "");
                json_node(item, item_kind(kind), depth + 1, text);
            }
            let _ = write!(text, "\n{:indent$}]", "");
        }
        Value::String(word) => text.push_str(&quoted(word)),
        _ => text.push_str(&scalar(node)),
    }
}
