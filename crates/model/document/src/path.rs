//! Field paths: how they are written, and how a node is looked up by one.
//!
//! The rule it keeps: struct fields are joined by dots, list indexes and keys with other characters
//! are in brackets (`evictionHard[memory.available]`); a lookup also accepts the dotted form.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Node, Value};

/// The longest part of a key that a path shows: more than any name that Kubernetes accepts. Without
/// a limit, many findings below one long key would exhaust memory.
const MAX_SHOWN_KEY: usize = 400;

/// The path of the child `key` of `parent`. A key that is too long is cut, and a path with such a
/// key leads to the parent only.
pub fn child_path(parent: &str, key: &str) -> String {
    if key.len() > MAX_SHOWN_KEY {
        return format!("{parent}[{}...]", &key[..key.floor_char_boundary(MAX_SHOWN_KEY)]);
    }
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
        longest_key(entries, path)
    }
}

/// The entry of the longest key that is a prefix of the path: keys may hold dots themselves, so the
/// longest match is the one meant. The map is looked up, never iterated: findings about a large map
/// look up as many paths as it has keys.
fn longest_key<'node, 'path>(
    entries: &'node BTreeMap<String, Node>,
    path: &'path str,
) -> Option<(&'node Node, &'path str)> {
    let mut below = Bound::Included(path);
    loop {
        // All prefixes of a text sort before it, the longest last; other keys lie among them.
        let (key, child) = entries.range::<str, _>((Bound::Unbounded, below)).next_back()?;
        if key.is_empty() {
            return None;
        }
        match path.strip_prefix(key.as_str()) {
            Some(rest) if rest.is_empty() || rest.starts_with(['.', '[']) => {
                return Some((child, rest));
            }
            Some(_) => below = Bound::Excluded(key),
            None => below = Bound::Included(&path[..common_prefix(key, path)]),
        }
    }
}

/// The length in bytes of the common prefix of two texts, up to a whole character.
fn common_prefix(one: &str, other: &str) -> usize {
    let same = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    other.floor_char_boundary(same)
}
