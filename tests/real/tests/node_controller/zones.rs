//! Rules about many nodes at once: zones, a cloud provider, ranges that run out, and the `explain`
//! output for each.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;
use serde_json::json;

use crate::stage::{ClusterTest, LOST, seconds};

const BIG: [&str; 4] = ["b0", "b1", "b2", "b3"];
const SMALL: [&str; 2] = ["a0", "a1"];

#[test]
fn zone_and_cloud_rules_hold_on_a_real_api_server() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(6)).run(|bed| {
        let stage = ClusterTest::new(bed, &keelson)?;
        stage.join(&BIG, "b")?;
        stage.join(&SMALL, "a")?;
        let machines = bed.dir().join("machines.json");
        let expect_explanations = |names: &[&str], shut: &str| -> Result<()> {
            let all: Vec<_> = names
                .iter()
                .map(|name| json!({"name": name, "state": if *name == shut { "ShutDown" } else { "Running" }}))
                .collect();
            let list = json!({"apiVersion": "keelson/v1", "kind": "MachineList",
                "complete": true, "machines": all});
            // In one step: a file that is half written would say that machines are gone.
            let new = machines.with_extension("new");
            fs::write(&new, list.to_string())?;
            Ok(fs::rename(&new, &machines)?)
        };
        let all = [BIG.as_slice(), SMALL.as_slice()].concat();
        expect_explanations(&all, "")?;
        let cloud = format!("--cloud-config={}", machines.display());
        // Four ranges for six nodes.
        let flags = ["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/22",
            "--node-cidr-mask-size=24", "--cloud-provider=file", &cloud];
        let mut controller = stage.controller("controller", &flags)?;
        ranges_run_out(&stage, &all).context("ranges that run out")?;
        most_of_a_zone(&stage).context("most of a zone")?;
        all_dark(&stage, &all).context("all zones dark")?;
        stage.hollow.stop_heartbeats(&["a1"]);
        stage.until("silent", seconds(30), || Ok(stage.ready("a1")? == "Unknown"))?;
        expect_explanations(&all, "a1")?;
        stage.until("shut down", seconds(30), || {
            let shut = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";
            Ok(stage.taints("a1")?.iter().any(|taint| taint == shut))
        })?;
        expect_explanations(&all[..5], "")?;
        stage.until("gone", seconds(30), || Ok(stage.all_nodes()?.iter().all(|it| it != "a1")))?;
        stage.until("an event says why", seconds(30), || {
            Ok(stage.reasons("a1")?.contains("DeletingNode"))
        })?;
        ensure!(stage.all_nodes()?.len() == 5, "the others stay: {:?}", stage.all_nodes()?);
        ensure!(controller.is_alive()?, "it lives");
        Ok(())
    })
}

fn ranges_run_out(stage: &ClusterTest<'_>, all: &[&str]) -> Result<()> {
    let without = || -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in all {
            if stage.node(name)?.spec.pod_cidrs.is_empty() {
                names.push((*name).to_owned());
            }
        }
        Ok(names)
    };
    stage.until("all four are given", seconds(30), || Ok(without()?.len() == 2))?;
    for name in without()? {
        stage.until("told", seconds(20), || {
            Ok(stage.reasons(&name)?.contains("CIDRNotAvailable"))
        })?;
    }
    Ok(())
}

/// The first two nodes of the zone are tainted and the third is not: with it most of the zone is
/// silent, and the zone is small.
fn most_of_a_zone(stage: &ClusterTest<'_>) -> Result<()> {
    for name in ["b0", "b1"] {
        stage.hollow.stop_heartbeats(&[name]);
        stage.until("given up", seconds(40), || Ok(stage.taints(name)? == LOST))?;
    }
    stage.hollow.stop_heartbeats(&["b2"]);
    stage.until("noticed", seconds(40), || {
        Ok(stage.taints("b2")?.iter().any(|taint| taint == "unreachable:NoSchedule"))
    })?;
    let output = stage.explain("controller", "b2")?;
    ensure!(output.contains("zone"), "what holds it back: {output}");
    stage.stays("not given up", seconds(6), || {
        Ok(stage.taints("b2")? == ["unreachable:NoSchedule"])
    })?;
    for name in SMALL {
        ensure!(stage.taints(name)?.is_empty() && stage.ready(name)? == "True", "{name}");
    }
    Ok(())
}

/// No node is tainted while all are silent, and existing taints are removed: the fault is likely to
/// be the controller's own connection.
fn all_dark(stage: &ClusterTest<'_>, all: &[&str]) -> Result<()> {
    stage.hollow.stop_heartbeats(&["b3", "a0", "a1"]);
    let any_unreachable = || -> Result<bool> {
        for name in all {
            if stage.taints(name)?.iter().any(|taint| taint == "unreachable:NoExecute") {
                return Ok(true);
            }
        }
        Ok(false)
    };
    stage.until("all are silent", seconds(40), || {
        all.iter().try_fold(true, |dark, name| Ok(dark && stage.ready(name)? == "Unknown"))
    })?;
    stage.until("taken back", seconds(20), || Ok(!any_unreachable()?))?;
    stage.stays("nobody is given up", seconds(5), || Ok(!any_unreachable()?))?;
    stage.runtime.block_on(stage.hollow.resume_heartbeats(all))?;
    stage.until("all are well", seconds(20), || {
        all.iter().try_fold(true, |well, name| Ok(well && stage.taints(name)?.is_empty()))
    })?;
    Ok(())
}
