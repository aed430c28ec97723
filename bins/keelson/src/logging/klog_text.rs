//! A record as klog's text: `I1115 22:53:01.123456    1234 file.rs:42] "message" key="value"`.
//!
//! Rule: byte for byte what klog writes for the same record (klog/v2 internal/buffer and
//! internal/serialize), so that tools that read a kubelet's log read ours: local time, the process
//! id in seven columns, Go's quoting, the cause of an error first, and values of several lines
//! indented between `=<` and ` >`.

use super::record::{LogRecord, LogSeverity, Value};
use jiff::Zoned;
use std::fmt::Write as _;

/// The line (or lines), with its line break.
pub(crate) fn render(record: &LogRecord, now: &Zoned, process: u32) -> String {
    let mut line = String::with_capacity(160);
    let letter = match record.severity {
        LogSeverity::Info => 'I',
        LogSeverity::Warning => 'W',
        LogSeverity::Error => 'E',
        LogSeverity::Fatal => 'F',
    };
    let file = record.file.rsplit('/').next().unwrap_or(record.file);
    // Writing to a String cannot fail.
    let _ = write!(
        line,
        "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {process:7} {file}:{}] ",
        now.month(),
        now.day(),
        now.hour(),
        now.minute(),
        now.second(),
        now.subsec_nanosecond() / 1000,
        record.line,
    );
    quote(&mut line, &record.message);
    if let Some(error) = &record.error {
        pair(&mut line, "err", &Value::Text(error.clone()));
    }
    for (name, value) in &record.values {
        pair(&mut line, name, value);
    }
    line.push('\n');
    line
}

fn pair(line: &mut String, name: &str, value: &Value) {
    let _ = write!(line, " {name}=");
    match value {
        Value::Text(text) if text.contains('\n') => lines(line, text),
        Value::Text(text) => quote(line, text),
        Value::Signed(number) => drop(write!(line, "{number}")),
        Value::Unsigned(number) => drop(write!(line, "{number}")),
        Value::Float(number) => drop(write!(line, "{number}")),
        Value::Bool(truth) => drop(write!(line, "{truth}")),
    }
}

fn lines(line: &mut String, text: &str) {
    line.push_str("<\n");
    for part in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let _ = writeln!(line, "\t{part}");
    }
    line.push_str(" >");
}

/// Quotes as Go's strconv.Quote does.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\u{7}' => line.push_str("\\a"),
            '\u{8}' => line.push_str("\\b"),
            '\u{c}' => line.push_str("\\f"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\u{b}' => line.push_str("\\v"),
            _ if is_printable(character) => line.push(character),
            _ => {
                let code = u32::from(character);
                let _ = match code {
                    0..0x80 => write!(line, "\\x{code:02x}"),
                    0x80..0x1_0000 => write!(line, "\\u{code:04x}"),
                    _ => write!(line, "\\U{code:08x}"),
                };
            }
        }
    }
    line.push('"');
}

/// Letters, marks, numbers, punctuation, symbols and the plain space.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return character == ' ' || character.is_ascii_graphic();
    }
    // Rust escapes what has no glyph; a mark is escaped only where it has no letter before it.
    let mut after_a_letter = String::from("a");
    after_a_letter.push(character);
    !character.is_whitespace() && after_a_letter.escape_debug().count() == 2
}
