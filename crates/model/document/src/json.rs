//! Parses JSON text (RFC 8259) to a tree with positions.
//!
//! The rule it keeps: exactly the grammar, nothing after the value, lone surrogates replaced. A
//! duplicate key is recorded as a finding; two objects under one key are merged, as they are when
//! JSON is decoded into a typed value.

use std::collections::BTreeMap;

use super::path::{child_path, item_path};
use super::yaml::{repeated_key, too_deep, too_many};
use super::{Document, MAX_DEPTH, MAX_NODES, MAX_REPEATED_KEYS, Node, Number, Value};
use crate::diagnostic::{Diagnostic, Origin};

pub(super) fn parse(text: &str, origin: &Origin) -> Result<Document, Diagnostic> {
    let mut reader = JsonReader {
        text,
        at: 0,
        line: 1,
        line_start: 0,
        origin,
        path_steps: Vec::new(),
        nodes: 0,
        repeated_keys: Vec::new(),
    };
    let root = reader.value()?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.refuse("expected nothing after the closing brace"));
    }
    Ok(Document { root, repeated_keys: reader.repeated_keys })
}

struct JsonReader<'text> {
    text: &'text str,
    at: usize,
    line: u32,
    line_start: usize,
    origin: &'text Origin,
    /// From the root to the value that is being read.
    path_steps: Vec<JsonPathStep>,
    nodes: usize,
    repeated_keys: Vec<Diagnostic>,
}

enum JsonPathStep {
    Key(String),
    Item(usize),
}

impl JsonReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn place(&self) -> Origin {
        let column = u32::try_from(self.at - self.line_start).unwrap_or(u32::MAX);
        self.origin.at(self.line, column.saturating_add(1))
    }

    fn refuse(&self, message: &str) -> Diagnostic {
        Diagnostic::error("", format!("not valid JSON: {message}")).at(self.place())
    }

    /// Line breaks occur only here: a string must escape them.
    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.at + 1;
                }
                b' ' | b'\t' | b'\r' => {}
                _ => return,
            }
            self.at += 1;
        }
    }

    /// Paths are built for findings only: with long keys above many values they are expensive.
    fn path(&self) -> String {
        self.path_steps.iter().fold(String::new(), |path, step| match step {
            JsonPathStep::Key(key) => child_path(&path, key),
            JsonPathStep::Item(index) => item_path(&path, *index),
        })
    }

    fn value_at(&mut self, step: JsonPathStep) -> Result<Node, Diagnostic> {
        self.path_steps.push(step);
        let node = self.value();
        self.path_steps.pop();
        node
    }

    fn value(&mut self) -> Result<Node, Diagnostic> {
        self.skip_space();
        let origin = self.place();
        if self.path_steps.len() > MAX_DEPTH {
            return Err(too_deep(origin));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(too_many(origin));
        }
        let value = match self.peek() {
            Some(b'{') => self.object()?,
            Some(b'[') => self.list()?,
            Some(b'"') => Value::String(self.string()?),
            Some(b't') => self.keyword("true", Value::Bool(true))?,
            Some(b'f') => self.keyword("false", Value::Bool(false))?,
            Some(b'n') => self.keyword("null", Value::Null)?,
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            _ => return Err(self.refuse("expected a value")),
        };
        Ok(Node::new(value, origin))
    }

    fn keyword(&mut self, keyword: &str, value: Value) -> Result<Value, Diagnostic> {
        if !self.text[self.at..].starts_with(keyword) {
            return Err(self.refuse("expected true, false or null"));
        }
        self.at += keyword.len();
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, Diagnostic> {
        let mut entries = BTreeMap::new();
        self.at += 1;
        self.skip_space();
        if self.take(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.refuse("expected a key in double quotes"));
            }
            let place = self.place();
            let key = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return Err(self.refuse("expected a colon after the key"));
            }
            let node = self.value_at(JsonPathStep::Key(key.clone()))?;
            if entries.contains_key(&key) && self.repeated_keys.len() < MAX_REPEATED_KEYS {
                let path = child_path(&self.path(), &key);
                self.repeated_keys.push(repeated_key(path).at(place));
            }
            overlay(entries.entry(key).or_insert_with(|| empty(&node)), node);
            self.skip_space();
            if self.take(b'}') {
                return Ok(Value::Map(entries));
            }
            if !self.take(b',') {
                return Err(self.refuse("expected a comma or a closing brace"));
            }
        }
    }

    fn list(&mut self) -> Result<Value, Diagnostic> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value_at(JsonPathStep::Item(items.len()))?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            if !self.take(b',') {
                return Err(self.refuse("expected a comma or a closing bracket"));
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn number(&mut self) -> Result<Number, Diagnostic> {
        let start = self.at;
        self.take(b'-');
        let whole = self.digits();
        let leading_zero = self.text.as_bytes()[self.at - whole..self.at].first() == Some(&b'0');
        if whole == 0 || (leading_zero && whole > 1) {
            return Err(self.refuse("expected a number without leading zeros"));
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            if self.digits() == 0 {
                return Err(self.refuse("expected digits after the decimal point"));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _sign = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(self.refuse("expected digits in the exponent"));
            }
        }
        let literal = &self.text[start..self.at];
        let exact = if integer { literal.parse().ok().map(Number::Integer) } else { None };
        let float = || Number::Float(literal.parse().unwrap_or(f64::NAN));
        Ok(exact.unwrap_or_else(float))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Result<String, Diagnostic> {
        let mut text = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|each: char| matches!(each, '"' | '\\') || each < ' ')
                .unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.refuse("control characters must be escaped")),
                None => return Err(self.refuse("the string has no end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Diagnostic> {
        self.at += 1;
        let letter = self.peek();
        self.at += usize::from(letter.is_some());
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => {
                // The byte may be in the middle of a character: step back before reporting the
                // position.
                self.at -= usize::from(letter.is_some());
                return Err(self.refuse("no such escape"));
            }
        })
    }

    fn unicode(&mut self) -> Result<char, Diagnostic> {
        let first = self.four_digits()?;
        let rest = &self.text[self.at..];
        if (0xd800..0xdc00).contains(&first) && rest.starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.four_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self) -> Result<u32, Diagnostic> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or("");
        if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.refuse("expected four hexadecimal digits"));
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| self.refuse("expected hexadecimal digits"))
    }
}

/// The initial value of an object whose key appears for the first time.
fn empty(node: &Node) -> Node {
    let value = match node.value {
        Value::Map(_) => Value::Map(BTreeMap::new()),
        _ => Value::Null,
    };
    Node::new(value, node.origin.clone())
}

fn overlay(target: &mut Node, node: Node) {
    match (&mut target.value, node.value) {
        (Value::Map(present), Value::Map(entries)) => {
            for (key, value) in entries {
                match present.get_mut(&key) {
                    Some(existing) => overlay(existing, value),
                    None => {
                        present.insert(key, value);
                    }
                }
            }
        }
        (_, value) => *target = Node::new(value, node.origin),
    }
}
