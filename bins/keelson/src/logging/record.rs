//! One log event as a value: severity, verbosity, where, what, and its fields in order.
//!
//! Rule: formats read records and nothing else. Secrets are masked here, on the way in.

use super::secrets;
use std::borrow::Cow;
use std::fmt;
use tracing::field::{Field, Visit};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogSeverity {
    Info,
    Warning,
    Error,
    /// An error after which the process ends; marked by the field `fatal`.
    Fatal,
}

/// A field's value, with as much type as the formats keep.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Bool(bool),
}

/// The fields of an event or a span, in the order in which they were given.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LogFields {
    pub(crate) message: String,
    pub(crate) verbosity: Option<u64>,
    pub(crate) fatal: bool,
    pub(crate) error: Option<String>,
    pub(crate) values: Vec<(Cow<'static, str>, Value)>,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogRecord {
    pub(crate) severity: LogSeverity,
    pub(crate) verbosity: u64,
    /// The source file as the compiler names it (`crates/…/src/file.rs`).
    pub(crate) file: &'static str,
    pub(crate) line: u32,
    pub(crate) message: String,
    /// Set only for errors, whose cause has a place of its own in both formats.
    pub(crate) error: Option<String>,
    pub(crate) values: Vec<(Cow<'static, str>, Value)>,
}

impl LogFields {
    fn put(&mut self, name: Cow<'static, str>, value: Value) {
        let value = match value {
            _ if secrets::is_secret_name(&name) => Value::Text(secrets::MASK.to_owned()),
            Value::Text(text) => Value::Text(secrets::mask_text(&text)),
            other => other,
        };
        // The later of two fields with one name wins, in the place of the earlier.
        match self.values.iter_mut().find(|(existing, _)| *existing == name) {
            Some((_, existing)) => *existing = value,
            None => self.values.push((name, value)),
        }
    }

    fn put_text(&mut self, name: &'static str, text: &str) {
        match name {
            "message" => self.message = secrets::mask_text(text),
            "err" | "error" => self.error = Some(secrets::mask_text(text)),
            _ => self.put(camel_case(name), Value::Text(text.to_owned())),
        }
    }

    /// Adds the fields of an inner scope.
    pub(crate) fn extend(&mut self, inner: &LogFields) {
        for (name, value) in &inner.values {
            self.put(name.clone(), value.clone());
        }
    }
}

/// The name as upstream's logs write names: `restart_in_seconds` is `restartInSeconds`.
fn camel_case(name: &'static str) -> Cow<'static, str> {
    if !name.contains('_') {
        return Cow::Borrowed(name);
    }
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut joined = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        joined.extend(first.chars().flat_map(char::to_uppercase));
        joined.push_str(rest);
    }
    Cow::Owned(joined)
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put_text(field.name(), &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "v" {
            self.verbosity = Some(u64::try_from(value).unwrap_or(0));
        } else {
            self.put(camel_case(field.name()), Value::Signed(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "v" {
            self.verbosity = Some(value);
        } else {
            self.put(camel_case(field.name()), Value::Unsigned(value));
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(camel_case(field.name()), Value::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "fatal" {
            self.fatal = value;
        } else {
            self.put(camel_case(field.name()), Value::Bool(value));
        }
    }
}
