//! A record as one JSON object per line, in the form of component-base's json format.
//!
//! Rule: the keys and their order are upstream's (zap): `ts` in milliseconds, `caller`, `msg`, `v`
//! for what is not an error, the fields, and an error's cause as `err` at the end. There is no key
//! for the severity, upstream has none: an error is known by the absence of `v`.

use super::record::{LogRecord, LogSeverity, Value};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// The line, with its line break.
pub(crate) fn render(record: &LogRecord, now: SystemTime) -> String {
    let mut line = String::with_capacity(200);
    // Writing to a String cannot fail.
    let _ = write!(line, "{{\"ts\":{},\"caller\":", milliseconds(now));
    text(&mut line, &format!("{}:{}", caller(record.file), record.line));
    line.push_str(",\"msg\":");
    text(&mut line, &record.message);
    if record.severity < LogSeverity::Error {
        let _ = write!(line, ",\"v\":{}", record.verbosity);
    }
    for (name, field) in &record.values {
        key(&mut line, name);
        value(&mut line, field);
    }
    if let Some(error) = &record.error {
        key(&mut line, "err");
        text(&mut line, error);
    }
    line.push_str("}\n");
    line
}

/// Milliseconds since the epoch with a fraction, as a 64-bit float like upstream's.
#[allow(clippy::cast_precision_loss, reason = "upstream's precision is that of a float too")]
fn milliseconds(now: SystemTime) -> f64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as f64 / 1_000_000.0
}

/// `crates/shell/node-agent/src/health.rs` is `node-agent/health.rs`: directory and file like zap's
/// short caller, with the crate as the directory since every file's own directory would be `src`.
fn caller(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let package = file.rsplit_once("/src/").and_then(|(before, _)| before.rsplit('/').next());
    package.map_or_else(|| name.to_owned(), |package| format!("{package}/{name}"))
}

fn key(line: &mut String, name: &str) {
    line.push(',');
    text(line, name);
    line.push(':');
}

fn value(line: &mut String, value: &Value) {
    match value {
        Value::Text(content) => text(line, content),
        Value::Signed(number) => drop(write!(line, "{number}")),
        Value::Unsigned(number) => drop(write!(line, "{number}")),
        Value::Float(number) if number.is_finite() => drop(write!(line, "{number}")),
        Value::Float(number) => text(line, &number.to_string()),
        Value::Bool(truth) => drop(write!(line, "{truth}")),
    }
}

fn text(line: &mut String, content: &str) {
    line.push_str(&serde_json::Value::from(content).to_string());
}
