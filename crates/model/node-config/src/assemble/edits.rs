//! Applies the flags' configuration fields over the tree.
//!
//! The rule it keeps: a flag replaces its field unless its edit adds keys or entries. An explicit
//! zero on the command line is a zero: no default applies.

use std::collections::BTreeMap;

use pod_model::GoDuration;

use crate::diagnostic::{Diagnostic, Origin};
use crate::document::{Node, Number, Value};
use crate::flags::{Combine, ConfigEdit};
use crate::schema;

const FLUSH_FREQUENCY: &str = "logging.flushFrequency";

/// Applies all edits to the tree.
pub(super) fn apply(tree: &mut Node, edits: &[ConfigEdit], diagnostics: &mut Vec<Diagnostic>) {
    for edit in edits {
        let Some(field) = schema::field_at(edit.path) else {
            let diagnostic = Diagnostic::error(edit.path, "no such configuration field");
            diagnostics.push(diagnostic.at(Origin::flag(edit.flag)));
            continue;
        };
        let explicit = Node::from_json(&edit.value, &Origin::flag(edit.flag));
        if explicit.is_null() {
            remove(tree, edit.path);
            continue;
        }
        let Some(node) = schema::check_value(&explicit, field.kind, edit.path, diagnostics) else {
            continue;
        };
        match edit.combine {
            Combine::Replace if edit.path == FLUSH_FREQUENCY => set_flush_frequency(tree, node),
            Combine::Replace => set(tree, edit.path, node),
            Combine::AddKeys | Combine::Append => add(tree, edit.path, node),
        }
    }
}

/// A tree that holds only the flags' values.
pub(super) fn flag_tree(edits: &[ConfigEdit]) -> Node {
    let mut tree = Node::new(Value::Map(BTreeMap::new()), Origin::Default);
    for edit in edits {
        set(&mut tree, edit.path, Node::from_json(&edit.value, &Origin::flag(edit.flag)));
    }
    tree
}

/// Sets the node at a dotted path, creating the objects on the way.
pub(super) fn set(tree: &mut Node, path: &str, node: Node) {
    let origin = node.origin.clone();
    change(tree, path, &origin, |place| *place = node);
}

/// Changes the node at a dotted path. Missing objects on the way are created, other values replaced
/// by one.
fn change(tree: &mut Node, path: &str, origin: &Origin, apply: impl FnOnce(&mut Node)) {
    let (step, rest) = match path.split_once('.') {
        Some((step, rest)) => (step, Some(rest)),
        None => (path, None),
    };
    if !matches!(tree.value, Value::Map(_)) {
        tree.value = Value::Map(BTreeMap::new());
    }
    let Value::Map(entries) = &mut tree.value else { return };
    let place =
        entries.entry(step.to_owned()).or_insert_with(|| Node::new(Value::Null, origin.clone()));
    match rest {
        Some(rest) => change(place, rest, origin, apply),
        None => apply(place),
    }
}

fn remove(tree: &mut Node, path: &str) {
    let take_from = |parent: &mut Node, name: &str| {
        if let Value::Map(entries) = &mut parent.value {
            entries.remove(name);
        }
    };
    match path.rsplit_once('.') {
        Some((parent, name)) => {
            change(tree, parent, &Origin::Default, |parent| take_from(parent, name));
        }
        None => take_from(tree, path),
    }
}

fn add(tree: &mut Node, path: &str, node: Node) {
    let origin = node.origin.clone();
    change(tree, path, &origin, |place| match (&mut place.value, node.value) {
        (Value::Map(present), Value::Map(keys)) => present.extend(keys),
        (Value::List(present), Value::List(entries)) => present.extend(entries),
        (_, value) => *place = Node::new(value, node.origin),
    });
}

/// A file that wrote the frequency as nanoseconds gets it back as nanoseconds.
fn set_flush_frequency(tree: &mut Node, mut node: Node) {
    let origin = node.origin.clone();
    change(tree, FLUSH_FREQUENCY, &origin, |place| {
        if let (Value::Number(_), Value::String(text)) = (&place.value, &node.value)
            && let Ok(duration) = GoDuration::parse(text)
        {
            node.value = Value::Number(Number::Integer(duration.as_nanos().into()));
        }
        *place = node;
    });
}
