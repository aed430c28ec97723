//! A cloud provider program, and CIDR ranges of one family: a node that exists is labelled, one
//! without a machine is deleted.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Result, ensure};
use node_testkit::start::RunningPart;
use serde_json::json;

use crate::stage::{ClusterTest, seconds};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Describes one machine completely, does not know one, and reports all others as running.
const PROGRAM: &str = r#"#!/bin/sh
read -r question
name=$(printf '%s' "$question" | sed 's/.*"name":"\([^"]*\)".*/\1/')
head='"apiVersion":"keelson/v1","kind":"Machine"'
case "$1 $name" in
'machine c0') printf '{%s,"exists":true,"machine":{"name":"c0","providerID":"rack://7/c0",
  "instanceType":"small","zone":"z7","region":"r7","state":"Running",
  "addresses":[{"type":"InternalIP","address":"10.9.8.7"},{"type":"Hostname","address":"c0"}],
  "labels":{"example.com/rack":"7"}}}' "$head" ;;
'machine ghost') printf '{%s,"exists":false}' "$head" ;;
machine\ *) printf '{%s,"exists":true,"machine":{"name":"%s","state":"Running"}}' "$head" "$name" ;;
*) echo "$1 is not known" >&2; exit 1 ;;
esac
"#;

/// A controller with the provider. Nodes with two ranges from another controller keep them.
pub(crate) fn machines(stage: &ClusterTest<'_>) -> Result<RunningPart> {
    let program = stage.file("machines");
    std::fs::write(&program, PROGRAM)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let config = format!("--cloud-config={}", program.display());
    let flags = [
        "--cloud-provider=exec",
        config.as_str(),
        "--allocate-node-cidrs",
        "--cluster-cidr=fd00:20::/60",
    ];
    let before = stage.node("n0")?.spec.pod_cidrs;
    let controller = stage.controller("controller-cloud", &flags)?;
    stage.join(&["c0"], "a")?;
    stage.taint("c0", &format!("{UNINITIALIZED}=true:NoSchedule"))?;
    let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
    stage.mute_node("ghost", &json!({"taints": [taint]}))?;
    stage.until("described", seconds(20), || {
        let node = stage.node("c0")?;
        Ok(node.spec.taints.is_empty() && !node.spec.provider_id.is_empty())
    })?;
    let node = stage.node("c0")?;
    ensure!(node.spec.provider_id == "rack://7/c0", "{}", node.spec.provider_id);
    for (label, value) in [
        ("node.kubernetes.io/instance-type", "small"),
        ("topology.kubernetes.io/zone", "z7"),
        ("topology.kubernetes.io/region", "r7"),
        ("example.com/rack", "7"),
    ] {
        let found = node.metadata.labels.get(label);
        ensure!(found.is_some_and(|found| found == value), "{label}: {found:?}");
    }
    let addresses: Vec<&str> = node.status.addresses.iter().map(|it| it.address.as_str()).collect();
    ensure!(addresses == ["10.9.8.7", "c0"], "{addresses:?}");
    stage.until("one range", seconds(10), || Ok(!stage.node("c0")?.spec.pod_cidrs.is_empty()))?;
    let ranges = stage.node("c0")?.spec.pod_cidrs;
    let fits = |range: &String| range.starts_with("fd00:20:0:") && range.ends_with("::/64");
    // The first block of all is written shorter.
    let first = |range: &String| range == "fd00:20::/64";
    ensure!(ranges.len() == 1 && ranges.iter().all(|it| fits(it) || first(it)), "{ranges:?}");
    ensure!(stage.node("n0")?.spec.pod_cidrs == before, "what a node has it keeps");
    stage.until("told", seconds(5), || Ok(stage.reasons("c0")?.contains("Synced")))?;
    stage.until("the ghost is deleted", seconds(20), || {
        Ok(!stage.all_nodes()?.contains(&"ghost".to_owned()))
    })?;
    stage.until("told", seconds(5), || Ok(stage.reasons("ghost")?.contains("DeletingNode")))?;
    Ok(controller)
}
