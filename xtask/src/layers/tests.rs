//! Tests of the check: one planted violation for each layer rule must be found, and the workspace
//! must have none.

use super::*;

fn node(layer: CrateLayer, uses: &[&str]) -> PackageNode {
    PackageNode {
        layer: Some(layer),
        uses: uses.iter().map(ToString::to_string).collect(),
        ..PackageNode::default()
    }
}

fn outside(uses: &[&str]) -> PackageNode {
    PackageNode { uses: uses.iter().map(ToString::to_string).collect(), ..PackageNode::default() }
}

/// A small valid project, one crate in each layer.
fn valid_project() -> Graph {
    Graph::from([
        ("words".into(), node(CrateLayer::Model, &["serde"])),
        ("ports".into(), node(CrateLayer::Model, &["words"])),
        ("plan".into(), node(CrateLayer::Decide, &["words"])),
        ("frames".into(), node(CrateLayer::Wire, &["prost"])),
        ("client".into(), node(CrateLayer::Adapter, &["ports", "frames", "tonic"])),
        ("volumes".into(), node(CrateLayer::Adapter, &["ports"])),
        ("engine".into(), node(CrateLayer::Runtime, &["frames", "tokio"])),
        ("agent".into(), node(CrateLayer::Shell, &["ports", "plan", "tokio"])),
        ("kit".into(), node(CrateLayer::TestKit, &["ports"])),
        ("program".into(), node(CrateLayer::Binary, &["agent", "client", "engine"])),
        ("tool".into(), node(CrateLayer::Tool, &["kit"])),
        ("serde".into(), outside(&[])),
        ("prost".into(), outside(&[])),
        ("tonic".into(), outside(&["tokio"])),
        ("tokio".into(), outside(&[])),
        ("innocent".into(), outside(&["tokio"])),
    ])
}

#[test]
fn a_valid_project_has_no_violation() {
    assert_eq!(violations(&valid_project()), Vec::<String>::new());
}

#[test]
fn every_planted_violation_is_found() {
    let planted: &[(&str, &str, &str)] = &[
        // the crate, what it is made to use, what the complaint must name
        ("words", "plan", "words (Model) may not depend on plan (Decide)"),
        ("words", "frames", "words (Model) may not depend on frames (Wire)"),
        ("ports", "client", "ports (Model) may not depend on client (Adapter)"),
        ("words", "tokio", "words (Model) may not reach tokio"),
        (
            "plan",
            "nobody-has-looked-at-this",
            "plan (Decide) may not reach nobody-has-looked-at-this",
        ),
        ("plan", "frames", "plan (Decide) may not depend on frames (Wire)"),
        ("plan", "agent", "plan (Decide) may not depend on agent (Shell)"),
        ("plan", "innocent", "plan (Decide) may not reach tokio (through innocent)"),
        ("frames", "words", "frames (Wire) may not depend on words (Model)"),
        ("client", "plan", "client (Adapter) may not depend on plan (Decide)"),
        ("client", "volumes", "client (Adapter) may not depend on volumes (Adapter)"),
        ("client", "agent", "client (Adapter) may not depend on agent (Shell)"),
        ("engine", "ports", "engine (Runtime) may not depend on ports (Model)"),
        ("engine", "agent", "engine (Runtime) may not depend on agent (Shell)"),
        ("agent", "client", "agent (Shell) may not depend on client (Adapter)"),
        ("agent", "frames", "agent (Shell) may not depend on frames (Wire)"),
        ("agent", "tonic", "agent (Shell) may not reach tonic"),
        ("agent", "kit", "agent (Shell) may not depend on kit (TestKit)"),
        ("program", "kit", "program (Binary) may not depend on kit (TestKit)"),
        ("tool", "program", "tool (Tool) may not depend on program (Binary)"),
    ];
    for (package, used, complaint) in planted {
        let mut graph = valid_project();
        graph.get_mut(*package).expect("a crate of the lawful project").uses.insert((*used).into());
        let found = violations(&graph);
        assert!(found.iter().any(|v| v.starts_with(complaint)), "{package} -> {used}: {found:?}");
    }
}

#[test]
fn tests_of_the_shell_may_use_the_kit_but_tests_of_the_pure_may_not() {
    let mut graph = valid_project();
    graph.get_mut("agent").expect("agent").tests_use.insert("kit".into());
    assert_eq!(violations(&graph), Vec::<String>::new());
    graph.get_mut("plan").expect("plan").tests_use.insert("kit".into());
    assert!(violations(&graph).iter().any(|v| v.starts_with("plan (Decide)")));
}

#[test]
fn this_workspace_keeps_the_law() {
    let metadata = crate::workspace::metadata().expect("cargo metadata");
    assert_eq!(packages_outside_layers(&metadata), Vec::<String>::new());
    let graph = graph_of(&metadata);
    assert!(graph["pod-model"].layer == Some(CrateLayer::Model), "the graph sees our crates");
    assert_eq!(violations(&graph), Vec::<String>::new());
}
