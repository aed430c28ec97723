//! YAML to values, as much as CDI files need: maps, lists, plain and quoted scalars.
//!
//! Rule: depth and number of values are limited; aliases are refused, because they can expand a
//! small file into a huge one; a duplicate key is an error.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

const MAX_DEPTH: usize = 32;
const MAX_COUNT: usize = 100_000;

enum OpenNode {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<OpenNode> = Vec::new();
    let mut count = 0;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| format!("not valid YAML: {error}"))?;
        let line = span.start.line();
        count += 1;
        if count > MAX_COUNT || open.len() > MAX_DEPTH {
            return Err(format!("line {line}: it has too many values or is too deep"));
        }
        let done = match event {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => None,
            Event::StreamEnd | Event::DocumentEnd => break,
            Event::Alias(_) => return Err(format!("line {line}: aliases are not taken here")),
            Event::SequenceStart(..) => {
                open.push(OpenNode::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(OpenNode::Map(Map::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(OpenNode::List(list)) => Some(Value::Array(list)),
                Some(OpenNode::Map(map, _)) => Some(Value::Object(map)),
                None => None,
            },
            Event::Scalar(text, style, _, _) => Some(scalar(&text, style)),
        };
        let Some(value) = done else { continue };
        match open.last_mut() {
            None => return Ok(value),
            Some(OpenNode::List(list)) => list.push(value),
            Some(OpenNode::Map(map, key)) => match key.take() {
                Some(name) if map.contains_key(&name) => {
                    return Err(format!("line {line}: the key {name:?} is there twice"));
                }
                Some(name) => {
                    map.insert(name, value);
                }
                None => match value {
                    Value::String(name) => *key = Some(name),
                    other => return Err(format!("line {line}: {other} cannot be a key")),
                },
            },
        }
    }
    Ok(Value::Null)
}

/// Plain scalars may be numbers, booleans or null; quoted ones are text.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

/// Integers, also octal and hexadecimal, as file modes are written.
fn number(text: &str) -> Option<Number> {
    let based = |digits: &str, base| i64::from_str_radix(digits, base).ok();
    let whole = if let Some(digits) = text.strip_prefix("0x") {
        based(digits, 16)
    } else if let Some(digits) = text.strip_prefix("0o") {
        based(digits, 8)
    } else if text.len() > 1
        && text.starts_with('0')
        && text.bytes().all(|one| one.is_ascii_digit())
    {
        based(text, 8)
    } else {
        text.parse().ok()
    };
    whole.map(Number::from)
}
