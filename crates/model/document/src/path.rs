//! Field paths: how they are written, and how a node is found by one.
//!
//! The rule it keeps: struct fields are joined by dots, list items and keys with other characters
//! stand in brackets (`evictionHard[memory.available]`), and looking up also takes the dotted form.

use super::{Node, Value};

/// The path of the child `key` of `parent`.
pub fn child_path(parent: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '_' | '-'));
    match (plain, parent.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{parent}.{key}"),
        (false, _) => format!("{parent}[{key}]"),
    }
}

/// The path of the list item `index` of `parent`.
pub fn item_path(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

impl Node {
    /// The node at a field path.
    pub fn find(&self, path: &str) -> Option<&Self> {
        self.nearest(path).and_then(|(node, rest)| rest.is_empty().then_some(node))
    }

    /// The deepest existing node on the way to a field path, without its last missing steps.
    pub fn find_nearest(&self, path: &str) -> &Self {
        self.nearest(path).map_or(self, |(node, _)| node)
    }

    fn nearest<'node, 'path>(&'node self, path: &'path str) -> Option<(&'node Self, &'path str)> {
        let (mut node, mut rest) = (self, path);
        while !rest.is_empty() {
            match node.step(rest) {
                Some((child, remaining)) => (node, rest) = (child, remaining),
                None => break,
            }
        }
        Some((node, rest))
    }

    /// One step along the path: the child and what remains.
    fn step<'path>(&self, path: &'path str) -> Option<(&Self, &'path str)> {
        if let Some(inner) = path.strip_prefix('[') {
            let (key, rest) = inner.split_once(']')?;
            let child = match &self.value {
                Value::List(items) => items.get(key.parse::<usize>().ok()?)?,
                Value::Map(entries) => entries.get(key)?,
                _ => return None,
            };
            return Some((child, rest));
        }
        let path = path.strip_prefix('.').unwrap_or(path);
        let Value::Map(entries) = &self.value else { return None };
        // Keys may hold dots themselves, so the longest key that fits is the one meant.
        entries
            .iter()
            .filter_map(|(key, child)| {
                let rest = path.strip_prefix(key.as_str())?;
                let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                (ends && !key.is_empty()).then_some((key.len(), child, rest))
            })
            .max_by_key(|(length, ..)| *length)
            .map(|(_, child, rest)| (child, rest))
    }
}
