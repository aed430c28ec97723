//! Merges flags, the file and the drop-ins into one settled tree in which every value knows its
//! origin.
//!
//! The rule it keeps: the order and the oddities of Kubernetes. Without `--config` the baseline has
//! four older defaults and no eviction thresholds. With it the file is decoded strictly, and
//! leniently with a warning where only strictness fails; its relative paths are resolved against
//! its directory; defaults and the eviction thresholds of the platform are filled in.
//! `--config-dir` then merges drop-ins over that *defaulted* document and applies defaults once
//! more. Flags come last. It reads no files and validates no values.
//!
//! Drop-ins are both looser and stricter than the file: field names match in any case, unknown
//! fields are ignored (here: with a warning), but a duplicate key is an error.

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostic, Origin, Severity};
use crate::document::{self, Node, Value};
use crate::feature_gates::{FeatureGates, Gate};
use crate::findings::drop_repeats;
use crate::flags::ConfigEdit;
use crate::schema::{self, DefaultingGates, KUBELET_CONFIGURATION, NameMatching};

mod drop_ins;
mod edits;
mod merge;
mod paths;
mod split_streams;

#[cfg(test)]
mod tests;

pub use drop_ins::{DropInOrder, drop_in_order};

/// A file as the caller read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Absolute: relative paths inside the file are resolved against its directory.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// What `--config`, `--config-dir` and `--image-credential-provider-config` name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigFiles {
    pub config: Option<SourceFile>,
    /// Only those that `drop_in_order` takes, in its order.
    pub drop_ins: Vec<SourceFile>,
    /// What `--image-credential-provider-config` names: the file, or those of the directory that
    /// `credential_provider::file_order` takes, in its order. `None` when the flag is not set.
    pub credential_providers: Option<Vec<SourceFile>>,
}

/// The settled tree, or as much of it as could be read.
#[derive(Debug, Clone)]
pub(crate) struct Assembled {
    pub(crate) tree: Node,
    /// False when a file could not be read as a configuration at all, so that validating the values
    /// would only produce follow-up findings.
    pub(crate) readable: bool,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The default hard eviction thresholds on Linux.
const EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// `has_config_dir` says whether `--config-dir` was given, with files in it or not.
pub(crate) fn assemble(
    edits: &[ConfigEdit],
    files: &ConfigFiles,
    has_config_dir: bool,
) -> Assembled {
    let mut assembly = ConfigAssembly { edits, readable: true, diagnostics: Vec::new() };
    assembly.check_flag_gates();
    let mut tree = match &files.config {
        Some(file) => assembly.config_file(file),
        None => baseline(),
    };
    // An empty directory is not the same as none: the document is still serialized and defaulted
    // again, so fields that serialization omits (an empty list) get their default back.
    if has_config_dir || !files.drop_ins.is_empty() {
        if files.config.is_none() {
            // Without a file the drop-ins are merged over the flags' values.
            assembly.apply_flags(&mut tree);
        }
        tree = assembly.merge_drop_ins(&tree, &files.drop_ins);
    }
    if files.config.is_some() || has_config_dir {
        assembly.forget_split_streams(&mut tree);
    }
    assembly.apply_flags(&mut tree);
    schema::fill_absent(&mut tree);
    let mut diagnostics = assembly.diagnostics;
    drop_repeats(&mut diagnostics);
    Assembled { tree, readable: assembly.readable, diagnostics }
}

struct ConfigAssembly<'edits> {
    edits: &'edits [ConfigEdit],
    readable: bool,
    diagnostics: Vec<Diagnostic>,
}

impl ConfigAssembly<'_> {
    /// Gates on the command line must stand on their own, before any file is looked at.
    fn check_flag_gates(&mut self) {
        let explicit = edits::flag_tree(self.edits);
        let (_, diagnostics) = FeatureGates::from_map(&gates_in(&explicit));
        self.diagnostics
            .extend(diagnostics.into_iter().map(|diagnostic| locate(diagnostic, &explicit)));
    }

    fn config_file(&mut self, file: &SourceFile) -> Node {
        let origin = Origin::File { path: file.path.as_str().into(), line: 0, column: 0 };
        let mut tree = match self.read(file, &origin) {
            Some(root) => schema::decode(
                &root,
                KUBELET_CONFIGURATION,
                NameMatching::Exact,
                &mut self.diagnostics,
            ),
            None => empty_tree(origin),
        };
        self.default_tree(&mut tree);
        fill_eviction_hard(&mut tree);
        schema::round_reserved_memory(&mut tree);
        schema::fill_absent(&mut tree);
        paths::resolve(&mut tree, &file.path);
        tree
    }

    fn merge_drop_ins(&mut self, tree: &Node, drop_ins: &[SourceFile]) -> Node {
        let mut merged = schema::document_form(tree, KUBELET_CONFIGURATION);
        for file in drop_ins {
            let origin = Origin::DropIn { path: file.path.as_str().into(), line: 0, column: 0 };
            if let Some(patch) = self.read(file, &origin) {
                merge::apply(&mut merged, patch);
            }
        }
        let names = NameMatching::IgnoreCase;
        let mut tree = schema::decode(&merged, KUBELET_CONFIGURATION, names, &mut self.diagnostics);
        self.default_tree(&mut tree);
        schema::fill_absent(&mut tree);
        tree
    }

    /// Parses a file and takes off its apiVersion and kind.
    fn read(&mut self, file: &SourceFile, origin: &Origin) -> Option<Node> {
        let document = match document::parse(&file.bytes, origin) {
            Ok(document) => document,
            Err(diagnostic) => {
                self.diagnostics.push(diagnostic);
                self.readable = false;
                return None;
            }
        };
        let strict = matches!(origin, Origin::DropIn { .. });
        self.diagnostics.extend(document.repeated_keys.into_iter().map(|mut diagnostic| {
            if strict {
                diagnostic.severity = Severity::Error;
                diagnostic.message = "the key is given more than once, expected once".to_owned();
            }
            diagnostic
        }));
        let mut root = document.root;
        let before = self.diagnostics.len();
        check_type(&root, strict, &mut self.diagnostics);
        if self.diagnostics.len() > before {
            self.readable = false;
            return None;
        }
        if let Value::Map(entries) = &mut root.value {
            entries.retain(|key, _| {
                !["apiVersion", "kind"]
                    .iter()
                    .any(|name| key == name || (strict && key.eq_ignore_ascii_case(name)))
            });
        }
        Some(root)
    }

    fn default_tree(&mut self, tree: &mut Node) {
        let flags = edits::flag_tree(self.edits);
        let mut named = gates_in(&flags);
        named.extend(gates_in(tree));
        let (gates, diagnostics) = FeatureGates::from_map(&named);
        // This stage must be valid even where a later one overrides it.
        self.diagnostics.extend(diagnostics.into_iter().map(|diagnostic| {
            let explicit_here = tree.find(&diagnostic.field).is_some();
            locate(diagnostic, if explicit_here { tree } else { &flags })
        }));
        schema::apply_defaults(tree, defaulting_gates(&gates));
    }

    fn forget_split_streams(&mut self, tree: &mut Node) {
        let mut named = gates_in(tree);
        named.extend(gates_in(&edits::flag_tree(self.edits)));
        // Errors of the gates are reported elsewhere.
        let (gates, _) = FeatureGates::from_map(&named);
        split_streams::forget_without_gate(tree, &gates, &mut self.diagnostics);
    }

    fn apply_flags(&mut self, tree: &mut Node) {
        edits::apply(tree, self.edits, &mut self.diagnostics);
    }
}

/// The baseline of a command line without `--config`. It exists before any flag is read, so no
/// gate on the command line can change its defaults.
fn baseline() -> Node {
    let mut tree = empty_tree(Origin::Default);
    schema::apply_defaults(&mut tree, defaulting_gates(&FeatureGates::default()));
    schema::fill_absent(&mut tree);
    for (path, value) in [
        ("authentication.anonymous.enabled", serde_json::json!(true)),
        ("authentication.webhook.enabled", serde_json::json!(false)),
        ("authorization.mode", serde_json::json!("AlwaysAllow")),
        ("readOnlyPort", serde_json::json!(10255)),
    ] {
        edits::set(&mut tree, path, Node::from_json(&value, &Origin::Default));
    }
    tree
}

fn defaulting_gates(gates: &FeatureGates) -> DefaultingGates {
    DefaultingGates {
        crash_loop_back_off_max: gates.enabled(Gate::KubeletCrashLoopBackOffMax),
        ensure_secret_pulled_images: gates.enabled(Gate::KubeletEnsureSecretPulledImages),
    }
}

fn empty_tree(origin: Origin) -> Node {
    Node::new(Value::Map(BTreeMap::new()), origin)
}

/// The feature gates that a tree names.
pub(crate) fn gates_in(tree: &Node) -> BTreeMap<String, bool> {
    let Some(entries) = tree.get("featureGates").and_then(Node::as_map) else {
        return BTreeMap::new();
    };
    let gate = |(name, node): (&String, &Node)| match node.value {
        Value::Bool(value) => Some((name.clone(), value)),
        _ => None,
    };
    entries.iter().filter_map(gate).collect()
}

/// Sets the origin of a finding to the position of the field that it names.
pub(crate) fn locate(diagnostic: Diagnostic, tree: &Node) -> Diagnostic {
    if !diagnostic.origin.is_default() || diagnostic.field.is_empty() {
        return diagnostic;
    }
    let nearest = tree.find_nearest(&diagnostic.field);
    if std::ptr::eq(nearest, tree) {
        return diagnostic;
    }
    let origin = nearest.origin.clone();
    diagnostic.at(origin)
}

/// Rejects anything but a `KubeletConfiguration` v1beta1. The file may spell the two keys in any
/// case (they are looked up by a case-insensitive decoder), a drop-in may not.
fn check_type(root: &Node, exact: bool, diagnostics: &mut Vec<Diagnostic>) {
    let Some(entries) = root.as_map() else {
        let found = if root.is_null() { "nothing" } else { root.kind_name() };
        let message = format!("expected an object of kind {}, found {found}", schema::KIND);
        diagnostics.push(Diagnostic::error("", message).at(root.origin.clone()));
        return;
    };
    for (name, wanted) in [("apiVersion", schema::API_VERSION), ("kind", schema::KIND)] {
        let found = entries.get(name).or_else(|| {
            let folded = entries.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
            folded.map(|(_, node)| node).next_back().filter(|_| !exact)
        });
        match found {
            Some(node) if node.as_str() == Some(wanted) => {}
            Some(node) if !node.is_null() => diagnostics.push(
                Diagnostic::error(name, format!("expected {wanted}"))
                    .with_value(node.shown())
                    .at(node.origin.clone()),
            ),
            _ => diagnostics.push(
                Diagnostic::error(name, format!("missing, expected {wanted}"))
                    .at(root.origin.clone()),
            ),
        }
    }
}

/// The file's loader fills in the platform's thresholds: all of them when the file sets none, the
/// missing ones when it asks for a merge.
fn fill_eviction_hard(tree: &mut Node) {
    let merge = tree.get("mergeDefaultEvictionSettings").map(|node| &node.value);
    let merge = merge == Some(&Value::Bool(true));
    let Value::Map(entries) = &mut tree.value else { return };
    let explicit = entries.contains_key("evictionHard");
    let thresholds =
        entries.entry("evictionHard".to_owned()).or_insert_with(|| empty_tree(Origin::Default));
    let Value::Map(thresholds) = &mut thresholds.value else { return };
    if !explicit || merge {
        for (signal, threshold) in EVICTION_HARD {
            thresholds
                .entry(signal.to_owned())
                .or_insert_with(|| Node::new(Value::String(threshold.to_owned()), Origin::Default));
        }
    }
}
