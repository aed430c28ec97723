//! The table of all flags, and how to find one.
//!
//! Rows are in `serving`, `pods` and `node`; this file holds their common helpers.

use super::kind::{Deprecation, FlagKind, FlagSpec, FlagTarget, NodeField};

mod node;
mod pods;
mod serving;

/// Every flag, in no particular order.
pub(super) fn all() -> impl Iterator<Item = &'static FlagSpec> {
    serving::SERVING.iter().chain(pods::PODS).chain(node::NODE).chain(node::REQUESTS)
}

/// The flag with this name. Underscores may stand for dashes.
pub(super) fn find(name: &str) -> Option<&'static FlagSpec> {
    if name.contains('_') {
        let dashed = name.replace('_', "-");
        return all().find(|flag| flag.name == dashed);
    }
    all().find(|flag| flag.name == name)
}

pub(super) fn find_shorthand(letter: char) -> Option<&'static FlagSpec> {
    all().find(|flag| flag.shorthand == Some(letter))
}

/// A field of the configuration file that also has a flag, as almost all old ones do.
const fn moved(
    name: &'static str,
    path: &'static str,
    kind: FlagKind,
    default: &'static str,
    help: &'static str,
) -> FlagSpec {
    let target = FlagTarget::Config(path, kind);
    FlagSpec { name, shorthand: None, target, deprecation: Deprecation::MovedToFile, default, help }
}

/// A field of the configuration file whose flag is meant to stay.
const fn lasting(
    name: &'static str,
    path: &'static str,
    kind: FlagKind,
    default: &'static str,
    help: &'static str,
) -> FlagSpec {
    let target = FlagTarget::Config(path, kind);
    // The only configuration flag with a shorthand is the log level, whose name is the letter.
    let shorthand = if matches!(kind, FlagKind::Level) { Some('v') } else { None };
    FlagSpec { name, shorthand, target, deprecation: Deprecation::NotDeprecated, default, help }
}

const fn node(
    name: &'static str,
    field: NodeField,
    deprecation: Deprecation,
    default: &'static str,
    help: &'static str,
) -> FlagSpec {
    FlagSpec { name, shorthand: None, target: FlagTarget::Node(field), deprecation, default, help }
}
