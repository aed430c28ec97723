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
pub(crate) struct PackageNode {
    /// `None` for a package that is not ours.
    pub(crate) layer: Option<CrateLayer>,
    /// What it is built from (normal and build dependencies).
    pub(crate) uses: BTreeSet<String>,
    /// What only its tests use.
    pub(crate) tests_use: BTreeSet<String>,
}

pub(crate) type Graph = BTreeMap<String, PackageNode>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CrateLayer {
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
const FORBIDDEN_TO_SHELL: &[&str] =
    &["tonic", "hyper", "kube", "rustls", "aws-lc-rs", "rustix", "nix", "zbus"];

impl CrateLayer {
    fn of_path(relative: &str) -> Option<CrateLayer> {
        let mut parts = relative.split('/');
        match (parts.next(), parts.next()) {
            (Some("crates"), Some("model")) => Some(CrateLayer::Model),
            (Some("crates"), Some("decide")) => Some(CrateLayer::Decide),
            (Some("crates"), Some("wire")) => Some(CrateLayer::Wire),
            (Some("crates"), Some("adapters")) => Some(CrateLayer::Adapter),
            (Some("crates"), Some("runtime")) => Some(CrateLayer::Runtime),
            (Some("crates"), Some("shell")) => Some(CrateLayer::Shell),
            (Some("crates"), Some("test")) | (Some("tests"), _) => Some(CrateLayer::TestKit),
            (Some("bins"), _) => Some(CrateLayer::Binary),
            (Some("xtask"), _) => Some(CrateLayer::Tool),
            _ => None,
        }
    }

    /// Which layers of ours a crate of this layer may be built from.
    fn may_use(self) -> &'static [CrateLayer] {
        use CrateLayer::{Adapter, Decide, Model, Runtime, Shell, TestKit, Wire};
        match self {
            Model => &[Model],
            Decide => &[Model],
            Wire => &[Wire],
            Adapter => &[Model, Wire],
            Runtime => &[Wire, Runtime],
            Shell => &[Model, Decide],
            CrateLayer::Binary => &[Model, Decide, Wire, Adapter, Runtime, Shell],
            TestKit => &[Model, Decide, Wire, Adapter, Runtime, Shell, TestKit],
            CrateLayer::Tool => &[Model, Wire, TestKit],
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

fn check_layers(graph: &Graph, name: &str, layer: CrateLayer, found: &mut Vec<String>) {
    let node = &graph[name];
    for (used, in_tests) in
        node.uses.iter().map(|n| (n, false)).chain(node.tests_use.iter().map(|n| (n, true)))
    {
        let Some(used_layer) = graph.get(used).and_then(|n| n.layer) else { continue };
        let allowed = layer.may_use().contains(&used_layer)
            || (in_tests && used_layer == CrateLayer::TestKit && layer > CrateLayer::Decide);
        if !allowed {
            found.push(format!("{name} ({layer:?}) may not depend on {used} ({used_layer:?})"));
        }
    }
}

fn check_outside(graph: &Graph, name: &str, layer: CrateLayer, found: &mut Vec<String>) {
    let reached = closure(graph, name);
    let forbidden = |outside: &str| match layer {
        CrateLayer::Model | CrateLayer::Decide => !PURE_FROM_OUTSIDE.contains(&outside),
        CrateLayer::Shell => FORBIDDEN_TO_SHELL.contains(&outside),
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
pub(crate) fn packages_outside_layers(metadata: &Metadata) -> Vec<String> {
    metadata
        .workspace_packages()
        .iter()
        .filter(|p| CrateLayer::of_path(&relative_dir(metadata, p)).is_none())
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
            node.layer = CrateLayer::of_path(&relative_dir(metadata, package));
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

fn relative_dir(metadata: &Metadata, package: &cargo_metadata::Package) -> String {
    let dir = package.manifest_path.parent().unwrap_or(&metadata.workspace_root);
    dir.strip_prefix(&metadata.workspace_root).map_or_else(|_| dir.to_string(), ToString::to_string)
}
