//! A configuration document as a tree in which every node knows its position.
//!
//! The rule it keeps: the same bytes mean here what they mean to the YAML and JSON readers of
//! Kubernetes (YAML 1.1 scalars, JSON when the first character is `{`, the first document only),
//! and no bytes can make it panic, recurse without end or grow without bound. It knows no fields;
//! what a key means is defined by the schema.
//!
//! Known differences, all of them in unusual files: tabs on blank lines, `\/` in a quoted string
//! and a `%YAML 1.2` line are accepted here and rejected there; a line of a flow list or of a
//! quoted string that begins with a tab, `[-]`, `\'` in double quotes, a byte order mark or a `%`
//! line in the middle of a document are rejected here and accepted there.

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostic, Origin};

pub mod diagnostic;

mod json;
mod path;
mod scalar;
mod yaml;

#[cfg(test)]
mod tests;

pub use path::{child_path, item_path};
pub use scalar::is_plain_word;

/// A larger configuration is rejected unread.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Deeper nesting is rejected; a real configuration needs six levels.
pub const MAX_DEPTH: usize = 100;
/// How many values a document may have; in YAML after its aliases are expanded.
pub const MAX_NODES: usize = 400_000;
/// How many duplicate keys are reported; more would not help an operator.
pub const MAX_REPEATED_KEYS: usize = 1_000;

/// One value with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
}

/// A number as written: an integer field accepts it only without a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Integer(i128),
    Float(f64),
}

/// The result of reading one file.
#[derive(Debug, Clone)]
pub struct Document {
    pub root: Node,
    /// Duplicate keys: warnings here, errors where decoding is strict.
    pub repeated_keys: Vec<Diagnostic>,
}

/// Reads one configuration file. `origin` identifies it; its line and column are set per node.
pub fn parse(bytes: &[u8], origin: &Origin) -> Result<Document, Diagnostic> {
    parse_at_most(bytes, origin, MAX_BYTES)
}

/// Reads one file whose kind has a size limit of its own.
pub fn parse_at_most(bytes: &[u8], origin: &Origin, limit: usize) -> Result<Document, Diagnostic> {
    let refuse = |message: String| Diagnostic::error("", message).at(origin.clone());
    if bytes.is_empty() {
        return Err(refuse("the file is empty, expected a configuration".to_owned()));
    }
    if bytes.len() > limit {
        let size = bytes.len();
        return Err(refuse(format!("the file has {size} bytes, expected at most {limit}")));
    }
    let text = String::from_utf8_lossy(bytes);
    if text.trim_start().starts_with('{') {
        return json::parse(&text, origin);
    }
    yaml::parse(&yaml::decode_text(bytes, origin)?, origin)
}

impl Node {
    pub fn new(value: Value, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// A tree from plain JSON, every node of the same origin (a flag, a default).
    pub fn from_json(json: &serde_json::Value, origin: &Origin) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => Value::Number(Number::from_json(number)),
            Json::String(text) => Value::String(text.clone()),
            Json::Array(items) => {
                Value::List(items.iter().map(|item| Self::from_json(item, origin)).collect())
            }
            Json::Object(entries) => Value::Map(
                entries
                    .iter()
                    .map(|(key, value)| (key.clone(), Self::from_json(value, origin)))
                    .collect(),
            ),
        };
        Self::new(value, origin.clone())
    }

    /// The tree as plain JSON, without positions.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(number) => number.to_json(),
            Value::String(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect(),
            ),
        }
    }

    pub fn as_map(&self) -> Option<&BTreeMap<String, Self>> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The direct child of this name.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key)
    }

    /// The value in a form for messages. The content of a list or an object is not shown: a message
    /// is about the field as a whole, and some value inside may be a secret.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::String(text) => text.clone(),
            Value::List(items) if !items.is_empty() => "[...]".to_owned(),
            Value::Map(entries) if !entries.is_empty() => "{...}".to_owned(),
            _ => self.to_json().to_string(),
        }
    }

    /// The type of this value, for messages.
    pub fn kind_name(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(Number::Integer(_)) => "a whole number",
            Value::Number(Number::Float(_)) => "a number with a fraction",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }
}

impl Number {
    pub fn from_json(number: &serde_json::Number) -> Self {
        match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Self::Integer(i128::from(whole)),
            (None, Some(whole)) => Self::Integer(i128::from(whole)),
            (None, None) => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    /// The number as JSON; NaN and infinities become null.
    pub fn to_json(self) -> serde_json::Value {
        match self {
            Self::Integer(whole) => match (i64::try_from(whole), u64::try_from(whole)) {
                (Ok(whole), _) => whole.into(),
                (Err(_), Ok(whole)) => whole.into(),
                // Beyond 64 bits JSON has floats only.
                (Err(_), Err(_)) => (whole as f64).into(),
            },
            Self::Float(value) => value.into(),
        }
    }

    /// The number as a person would write it, for readers that take numbers as text (quantities).
    pub fn text(self) -> String {
        match self {
            Self::Integer(whole) => whole.to_string(),
            // Very small and very large numbers are written with an exponent, as in JSON.
            Self::Float(value) if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) => {
                format!("{value:e}")
            }
            Self::Float(value) => value.to_string(),
        }
    }
}
