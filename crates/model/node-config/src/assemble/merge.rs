//! A JSON merge patch over a tree, keeping the origin of every value.
//!
//! The rule it keeps: RFC 7396 as Kubernetes' library does it: objects are merged key by key, a
//! null removes, everything else replaces; a list is always replaced as a whole.

use crate::document::{Node, Value};

/// Merges `patch` into `target`.
pub(super) fn apply(target: &mut Node, mut patch: Node) {
    match (&mut target.value, patch.value) {
        (Value::Map(entries), Value::Map(changes)) => {
            for (key, mut change) in changes {
                if change.is_null() {
                    entries.remove(&key);
                } else if let Some(present) = entries.get_mut(&key) {
                    apply(present, change);
                } else {
                    prune_nulls(&mut change);
                    entries.insert(key, change);
                }
            }
            // The changed values came from the patch; the object itself has both origins now.
            target.origin = patch.origin;
        }
        (_, value) => {
            patch = Node::new(value, patch.origin);
            if matches!(patch.value, Value::Map(_)) {
                prune_nulls(&mut patch);
            }
            *target = patch;
        }
    }
}

/// Nulls in a patch only remove, so they vanish where there is nothing to remove.
fn prune_nulls(node: &mut Node) {
    match &mut node.value {
        Value::Map(entries) => {
            entries.retain(|_, value| !value.is_null());
            entries.values_mut().for_each(prune_nulls);
        }
        Value::List(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}
