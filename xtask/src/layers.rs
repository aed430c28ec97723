//! The layer rule: a directory is a layer, and dependencies point one way.
//!
//! Works on a plain graph read from `cargo metadata`, so that a test can plant a violation of each
//! rule. Dependencies are followed transitively: a pure crate must not reach a socket through other
//! crates either.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, PackageId};

#[cfg(test)]
mod tests;

/// The properties of a package that the rules use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// `None` for a package that is not ours.
    pub(crate) layer: Option<Layer>,
    /// What it is built from (normal and build dependencies).
    pub(crate) uses: BTreeSet<String>,
    /// What only its tests use.
    pub(crate) tests_use: BTreeSet<String>,
}

pub(crate) type Graph = BTreeMap<String, Node>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    Model,
    Decide,
    Wire,
    Adapter,
    Runtime,
    Shell,
    TestKit,
    Binary,
    Tool,
}

/// External crates that a pure crate may be built from: data in, data out. A crate that is not
/// listed is taken to do I/O until it has been reviewed.
const PURE_FROM_OUTSIDE: &[&str] = &[
    "arraydeque",
    "autocfg",
    "base64",
    "hashlink",
    "hashbrown",
    "foldhash",
    "itoa",
    "memchr",
    "proc-macro2",
    "quote",
    "ryu",
    "saphyr-parser",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_json",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "zmij",
];

/// Crates that the shell may never reach, not even transitively: with these its own tests would
/// need a gRPC stack, an API client or TLS just to compile.
const KEPT_FROM_SHELL: &[&str] =
    &["tonic", "hyper", "kube", "rustls", "aws-lc-rs", "rustix", "nix", "zbus"];

impl Layer {
    fn of_path(relative: &str) -> Option<Layer> {
        let mut parts = relative.split('/');
        match (parts.next(), parts.next()) {
            (Some("crates"), Some("model")) => Some(Layer::Model),
            (Some("crates"), Some("decide")) => Some(Layer::Decide),
            (Some("crates"), Some("wire")) => Some(Layer::Wire),
            (Some("crates"), Some("adapters")) => Some(Layer::Adapter),
            (Some("crates"), Some("runtime")) => Some(Layer::Runtime),
            (Some("crates"), Some("shell")) => Some(Layer::Shell),
            (Some("crates"), Some("test")) | (Some("tests"), _) => Some(Layer::TestKit),
            (Some("bins"), _) => Some(Layer::Binary),
            (Some("xtask"), _) => Some(Layer::Tool),
            _ => None,
        }
    }

    /// Which layers of ours a crate of this layer may be built from.
    fn may_use(self) -> &'static [Layer] {
        use Layer::{Adapter, Decide, Model, Runtime, Shell, TestKit, Wire};
        match self {
            Model => &[Model],
            Decide => &[Model],
            Wire => &[Wire],
            Adapter => &[Model, Wire],
            Runtime => &[Wire, Runtime],
            Shell => &[Model, Decide],
            Layer::Binary => &[Model, Decide, Wire, Adapter, Runtime, Shell],
            TestKit => &[Model, Decide, Wire, Adapter, Runtime, Shell, TestKit],
            Layer::Tool => &[Model, Wire, TestKit],
        }
    }
}

/// All violations, as a sentence each.
pub(crate) fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (name, node) in graph {
        let Some(layer) = node.layer else { continue };
        check_layers(graph, name, layer, &mut found);
        check_outside(graph, name, layer, &mut found);
    }
    found
}

fn check_layers(graph: &Graph, name: &str, layer: Layer, found: &mut Vec<String>) {
    let node = &graph[name];
    for (used, in_tests) in
        node.uses.iter().map(|n| (n, false)).chain(node.tests_use.iter().map(|n| (n, true)))
    {
        let Some(used_layer) = graph.get(used).and_then(|n| n.layer) else { continue };
        let allowed = layer.may_use().contains(&used_layer)
            || (in_tests && used_layer == Layer::TestKit && layer > Layer::Decide);
        if !allowed {
            found.push(format!("{name} ({layer:?}) may not depend on {used} ({used_layer:?})"));
        }
    }
}

fn check_outside(graph: &Graph, name: &str, layer: Layer, found: &mut Vec<String>) {
    let reached = closure(graph, name);
    let forbidden = |outside: &str| match layer {
        Layer::Model | Layer::Decide => !PURE_FROM_OUTSIDE.contains(&outside),
        Layer::Shell => KEPT_FROM_SHELL.contains(&outside),
        _ => false,
    };
    for (outside, via) in reached {
        let ours = graph.get(&outside).is_some_and(|n| n.layer.is_some());
        if !ours && forbidden(&outside) {
            found.push(format!("{name} ({layer:?}) may not reach {outside} (through {via})"));
        }
    }
}

/// Everything that `start` is built from, each with the package through which it was first reached.
fn closure(graph: &Graph, start: &str) -> BTreeMap<String, String> {
    let mut reached = BTreeMap::new();
    let mut open = vec![start.to_owned()];
    while let Some(name) = open.pop() {
        let Some(node) = graph.get(&name) else { continue };
        for used in &node.uses {
            if !reached.contains_key(used) {
                reached.insert(used.clone(), name.clone());
                open.push(used.clone());
            }
        }
    }
    reached.remove(start);
    reached
}

/// The names of everything that a package is built from.
pub(crate) fn built_from(graph: &Graph, package: &str) -> BTreeSet<String> {
    closure(graph, package).into_keys().collect()
}

/// Our packages outside every known directory, which the architecture map would not show.
pub(crate) fn homeless(metadata: &Metadata) -> Vec<String> {
    metadata
        .workspace_packages()
        .iter()
        .filter(|p| Layer::of_path(&relative_folder(metadata, p)).is_none())
        .map(|p| format!("{} lies in {}, which is no layer", p.name, p.manifest_path))
        .collect()
}

pub(crate) fn graph_of(metadata: &Metadata) -> Graph {
    let names: BTreeMap<&PackageId, &cargo_metadata::Package> =
        metadata.packages.iter().map(|p| (&p.id, p)).collect();
    let ours: BTreeSet<&PackageId> = metadata.workspace_members.iter().collect();
    let mut graph = Graph::new();
    let nodes = metadata.resolve.iter().flat_map(|r| &r.nodes);
    for resolved in nodes {
        let Some(package) = names.get(&resolved.id) else { continue };
        let node = graph.entry(package.name.to_string()).or_default();
        if ours.contains(&resolved.id) {
            node.layer = Layer::of_path(&relative_folder(metadata, package));
        }
        for dependency in &resolved.deps {
            let Some(target) = names.get(&dependency.pkg) else { continue };
            let used = target.name.to_string();
            if dependency.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development) {
                node.uses.insert(used);
            } else {
                node.tests_use.insert(used);
            }
        }
    }
    graph
}

fn relative_folder(metadata: &Metadata, package: &cargo_metadata::Package) -> String {
    let folder = package.manifest_path.parent().unwrap_or(&metadata.workspace_root);
    folder
        .strip_prefix(&metadata.workspace_root)
        .map_or_else(|_| folder.to_string(), ToString::to_string)
}
