//! Type names that are defined in more than one crate: one name is one thing.

use std::collections::BTreeSet;

use super::lexer::SourceToken;

/// Files whose types mirror objects of Kubernetes as they are on the wire, and generated ones. A
/// type there has upstream's name whatever other crates define.
pub(super) const WIRE_MIRRORS: &[&str] = &[
    "crates/adapters/apiserver-client/src/protobuf.rs",
    "crates/model/ports/src/cluster_objects.rs",
    "crates/model/ports/src/node_object.rs",
    "crates/wire/cri-wire/src/generated/runtime.v1.rs",
    "crates/wire/plugin-wire/src/generated/csi.v1.rs",
    "crates/wire/plugin-wire/src/generated/pluginregistration.rs",
    "crates/wire/plugin-wire/src/generated/v1.rs",
    "crates/wire/plugin-wire/src/generated/v1alpha1.rs",
    "crates/wire/plugin-wire/src/generated/v1beta1.rs",
    "tests/real/src/node_controller/watch_frames.rs",
];

/// The types that a file defines: structs, enums, unions, traits, and aliases outside of blocks. An
/// alias in a block is an associated type, whose name the trait gives.
pub(super) fn defined_types(tokens: &[SourceToken<'_>]) -> BTreeSet<String> {
    let mut depth = 0_usize;
    let mut found = BTreeSet::new();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            SourceToken::Punctuation(b'{') => depth += 1,
            SourceToken::Punctuation(b'}') => depth = depth.saturating_sub(1),
            SourceToken::Identifier(keyword) => {
                let defines = match *keyword {
                    "struct" | "enum" | "union" | "trait" => true,
                    "type" => depth == 0,
                    _ => false,
                };
                let name = tokens.get(index + 1);
                if let (true, Some(SourceToken::Identifier(name))) = (defines, name) {
                    found.insert((*name).to_owned());
                }
            }
            SourceToken::Punctuation(_) | SourceToken::Comment(_) => {}
        }
    }
    found
}
