//! Decodes a raw tree to a tree of known fields with values of the right kind.
//!
//! The rule it keeps: it accepts what the decoder of Kubernetes accepts. A number in place of a
//! string is an error, a null mostly means "unset", a duration is a string; every finding has its
//! path, its value and what was expected, and all of them are collected. Durations and quantities
//! are converted to their canonical form.

use std::collections::BTreeMap;

use pod_model::{GoDuration, Quantity};

use super::{FieldKind, Presence, SchemaField};
use crate::diagnostic::{Diagnostic, MASK, may_be_secret};
use crate::document::{Node, Number, Value, child_path, item_path};

/// Whether `MaxPods` means `maxPods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameMatching {
    /// As the file of `--config` is decoded.
    Exact,
    /// As drop-ins are decoded: their merged form goes through a decoder that ignores case.
    IgnoreCase,
}

/// Decodes an object by its fields. Unknown fields are dropped with a warning each.
pub fn decode(
    node: &Node,
    fields: &'static [SchemaField],
    names: NameMatching,
    diagnostics: &mut Vec<Diagnostic>,
) -> Node {
    let mut decoder = SchemaDecoder { names, diagnostics };
    decoder
        .object(node, fields, "")
        .unwrap_or_else(|| Node::new(Value::Map(BTreeMap::new()), node.origin.clone()))
}

/// Checks one value against one kind; `None` when it is rejected.
pub fn check_value(
    node: &Node,
    kind: FieldKind,
    path: &str,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Node> {
    SchemaDecoder { names: NameMatching::Exact, diagnostics }.value(node, kind, path)
}

struct SchemaDecoder<'problems> {
    names: NameMatching,
    diagnostics: &'problems mut Vec<Diagnostic>,
}

impl SchemaDecoder<'_> {
    fn object(&mut self, node: &Node, fields: &'static [SchemaField], path: &str) -> Option<Node> {
        let Some(entries) = node.as_map() else {
            self.refuse_kind(node, FieldKind::Object(fields), path);
            return None;
        };
        let mut known: BTreeMap<String, Node> = BTreeMap::new();
        // Entries come in the order of their bytes, which is also the order in which drop-ins are
        // decoded, so where two spellings of one name meet the later one wins here as well.
        for (name, value) in entries {
            let child = child_path(path, name);
            let Some(field) = self.find_field(fields, name) else {
                // An unknown name may be a misspelled secret field, so it is masked when it
                // resembles one.
                let shown = if may_be_secret(&child) { MASK.to_owned() } else { value.shown() };
                let diagnostic = Diagnostic::warning(child, unknown_field(fields, name));
                self.diagnostics.push(diagnostic.with_value(shown).at(value.origin.clone()));
                continue;
            };
            if let Some(settled) = self.field(value, field, &child) {
                put(&mut known, field.name, settled);
            }
        }
        Some(Node::new(Value::Map(known), node.origin.clone()))
    }

    fn find_field(
        &mut self,
        fields: &'static [SchemaField],
        name: &str,
    ) -> Option<&'static SchemaField> {
        let exact = fields.iter().find(|field| field.name == name);
        match self.names {
            NameMatching::Exact => exact,
            NameMatching::IgnoreCase => {
                exact.or_else(|| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)))
            }
        }
    }

    fn field(&mut self, node: &Node, field: &SchemaField, path: &str) -> Option<Node> {
        if !node.is_null() {
            return self.value(node, field.kind, path);
        }
        // A plain duration has its own decoder, which requires a string even here.
        let pointer = matches!(field.presence, Presence::Explicit | Presence::Optional);
        if matches!(field.kind, FieldKind::Duration) && !pointer {
            self.refuse_kind(node, field.kind, path);
        }
        None
    }

    fn value(&mut self, node: &Node, kind: FieldKind, path: &str) -> Option<Node> {
        let settled = match (kind, &node.value) {
            (FieldKind::List(inner), Value::List(items)) => {
                let items = items.iter().enumerate().filter_map(|(index, item)| {
                    self.element(item, *inner, &item_path(path, index))
                });
                Some(Value::List(items.collect()))
            }
            (FieldKind::Map(inner), Value::Map(entries)) => {
                let mut settled = BTreeMap::new();
                for (key, value) in entries {
                    if let Some(value) = self.element(value, *inner, &child_path(path, key)) {
                        settled.insert(key.clone(), value);
                    }
                }
                Some(Value::Map(settled))
            }
            (FieldKind::Object(fields), Value::Map(_)) => return self.object(node, fields, path),
            _ => scalar(node, kind),
        };
        if settled.is_none() {
            self.refuse_kind(node, kind, path);
        }
        settled.map(|value| Node::new(value, node.origin.clone()))
    }

    /// A null inside a list or a map is an empty value, not an absent one.
    fn element(&mut self, node: &Node, kind: FieldKind, path: &str) -> Option<Node> {
        if node.is_null() {
            return Some(Node::new(zero(kind), node.origin.clone()));
        }
        self.value(node, kind, path)
    }

    fn refuse_kind(&mut self, node: &Node, kind: FieldKind, path: &str) {
        let same_shape = matches!(
            (kind, &node.value),
            (
                FieldKind::Duration | FieldKind::DurationOrNanoseconds | FieldKind::Quantity,
                Value::String(_)
            ) | (
                FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint32,
                Value::Number(Number::Integer(_))
            )
        );
        let message = if same_shape {
            format!("expected {}", kind.expectation())
        } else {
            format!("expected {}, found {}", kind.expectation(), node.kind_name())
        };
        let diagnostic = Diagnostic::error(path, message).with_value(node.shown());
        self.diagnostics.push(diagnostic.at(node.origin.clone()));
    }
}

/// Two spellings of one field: objects are merged, anything else is replaced.
fn put(known: &mut BTreeMap<String, Node>, name: &str, node: Node) {
    match known.get_mut(name) {
        Some(Node { value: Value::Map(present), .. }) => match node.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    put(present, &key, value);
                }
            }
            value => {
                known.insert(name.to_owned(), Node::new(value, node.origin));
            }
        },
        _ => {
            known.insert(name.to_owned(), node);
        }
    }
}

fn unknown_field(fields: &[SchemaField], name: &str) -> String {
    match fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)) {
        Some(field) => format!("unknown field, ignored; did you mean {}?", field.name),
        None => "unknown field, ignored".to_owned(),
    }
}

/// A scalar in its canonical form, when its kind accepts it.
fn scalar(node: &Node, kind: FieldKind) -> Option<Value> {
    let in_range = |low: i128, high: i128| match node.value {
        Value::Number(Number::Integer(whole)) if (low..=high).contains(&whole) => {
            Some(node.value.clone())
        }
        _ => None,
    };
    match (kind, &node.value) {
        (FieldKind::Bool, Value::Bool(_))
        | (FieldKind::Text | FieldKind::Time, Value::String(_)) => Some(node.value.clone()),
        (FieldKind::Int32, _) => in_range(i32::MIN.into(), i32::MAX.into()),
        (FieldKind::Int64, _) => in_range(i64::MIN.into(), i64::MAX.into()),
        (FieldKind::Uint32, _) => in_range(0, u32::MAX.into()),
        (FieldKind::Float, Value::Number(number)) => float(*number),
        (FieldKind::Duration | FieldKind::DurationOrNanoseconds, Value::String(text)) => {
            GoDuration::parse(text).ok().map(|duration| Value::String(duration.to_string()))
        }
        (FieldKind::DurationOrNanoseconds, _) => in_range(i64::MIN.into(), i64::MAX.into()),
        (FieldKind::Quantity, Value::String(text)) => quantity(text),
        (FieldKind::Quantity, Value::Number(number)) => quantity(&number.text()),
        _ => None,
    }
}

/// Kubernetes writes a float without a fraction as an integer, so that is its canonical form here.
fn float(number: Number) -> Option<Value> {
    match number {
        Number::Float(number) if !number.is_finite() => None,
        Number::Float(number) if number.fract() == 0.0 && number.abs() < 1e21 => {
            Some(Value::Number(Number::Integer(number as i128)))
        }
        number => Some(Value::Number(number)),
    }
}

fn quantity(text: &str) -> Option<Value> {
    Quantity::parse(text.trim()).ok().map(|quantity| Value::String(quantity.to_string()))
}

/// The zero value of a field of this kind.
pub(super) fn zero(kind: FieldKind) -> Value {
    match kind {
        FieldKind::Bool => Value::Bool(false),
        FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint32 => {
            Value::Number(Number::Integer(0))
        }
        FieldKind::Float => Value::Number(Number::Float(0.0)),
        FieldKind::Text | FieldKind::Time => Value::String(String::new()),
        FieldKind::Duration | FieldKind::DurationOrNanoseconds => Value::String("0s".to_owned()),
        FieldKind::Quantity => Value::String("0".to_owned()),
        FieldKind::List(_) => Value::List(Vec::new()),
        FieldKind::Map(_) | FieldKind::Object(_) => Value::Map(BTreeMap::new()),
    }
}

/// Whether a value equals its `zero`; lists and maps when they are empty.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(Number::Integer(whole)) => *whole == 0,
        Value::Number(Number::Float(number)) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
    }
}
