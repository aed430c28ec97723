//! JSON values as YAML for people.
//!
//! Rule: the output parses to the same value. Texts that could be parsed as another type are quoted
//! as JSON, which is YAML too.

use serde_json::Value;

pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                text.push_str(&"  ".repeat(depth));
                text.push_str(&plain(name));
                text.push(':');
                beneath(value, depth, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&"  ".repeat(depth));
                text.push('-');
                match item {
                    // The first field stands beside the dash.
                    Value::Object(fields) if !fields.is_empty() => {
                        let mut inner = String::new();
                        block(item, depth + 1, &mut inner);
                        text.push(' ');
                        text.push_str(inner.trim_start());
                    }
                    _ => beneath(item, depth, text),
                }
            }
        }
        other => {
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

fn beneath(value: &Value, depth: usize, text: &mut String) {
    let nests = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if nests {
        text.push('\n');
        block(value, depth + 1, text);
    } else {
        text.push(' ');
        text.push_str(&scalar(value));
        text.push('\n');
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(content) => plain(content),
        other => other.to_string(),
    }
}

fn plain(content: &str) -> String {
    if document::is_plain_word(content) {
        content.to_owned()
    } else {
        Value::String(content.to_owned()).to_string()
    }
}
