//! Each rule once: missing heartbeats, taints, clocks, pod deletion, out-of-service, garbage
//! collection, ranges.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;
use ports::cluster_api::ObjectPath;
use real_tests::node_controller::cluster::USER;
use serde_json::json;

use crate::cloud;
use crate::stage::{ClusterTest, GRACE, LOST, bears, seconds};
use crate::volumes;

const RANGES: &[&str] = &[
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/20,fd00:10:244::/60",
    "--node-cidr-mask-size-ipv4=24",
    "--node-cidr-mask-size-ipv6=64",
    "--service-cluster-ip-range=10.244.0.0/24",
    "--terminated-pod-gc-threshold=2",
];

/// In seconds.
const YEAR: i64 = 365 * 24 * 3600;

/// Seconds from a node's taint to a pod's deletion, by the API server's own times.
fn tolerated_for(stage: &ClusterTest<'_>, pod: &str, node: &str) -> Result<i64> {
    let seconds = |time: ports::ApiTime| time.nanos() / 1_000_000_000;
    let taints = stage.node(node)?.spec.taints;
    let taint = taints.into_iter().find(|it| it.effect == "NoExecute").context("a taint")?;
    let added = seconds(taint.time_added.context("its time")?);
    let pod = stage.pod(pod)?.context("the pod is there")?.metadata;
    let ends = seconds(pod.deletion_timestamp.context("sent away")?);
    Ok(ends - pod.deletion_grace_period_seconds.unwrap_or_default() - added)
}

const NODES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];

#[test]
fn every_rule_holds_on_a_real_api_server() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(8)).run(|bed| {
        let stage = ClusterTest::audited(bed, &keelson, &[USER.to_owned()])?;
        stage.join(&NODES, "a")?;
        stage.run_pod("orphan", "n9", &bears(None))?;
        stage.end_unbound_pod("unbound")?;
        let mut controller = stage.controller("controller", RANGES)?;
        let began = Instant::now();
        ranges(&stage).context("ranges")?;
        silence_and_return(&stage).context("silence and return")?;
        pressure_and_cordon(&stage).context("pressure and cordon")?;
        controller = tolerations_survive(&stage, controller).context("tolerations survive")?;
        occupied_ranges(&stage).context("occupied ranges")?;
        volumes::out_of_service(&stage).context("out of service")?;
        ended_pods(&stage).context("ended pods")?;
        stage.until("the orphan is gone", seconds(90), || Ok(stage.pod("orphan")?.is_none()))?;
        ensure!(began.elapsed() > seconds(40), "the quarantine was kept");
        // Its finalizer keeps it; its status says that it will never run.
        stage.until("the unbound one has failed", seconds(60), || {
            Ok(stage.pod("unbound")?.is_some_and(|pod| pod.status.phase == "Failed"))
        })?;
        ensure!(controller.is_alive()?, "it lives");
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(!log.contains("panicked"), "{log}");
        // Asked to end, it leaves the lease to the next at once.
        drop(controller);
        let mut controller = cloud::machines(&stage).context("machines of a cloud")?;
        ensure!(controller.is_alive()?, "it lives");
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(!log.contains("panicked"), "{log}");
        Ok(())
    })
}

fn ranges(stage: &ClusterTest<'_>) -> Result<()> {
    let of = |name: &str| anyhow::Ok(stage.node(name)?.spec.pod_cidrs);
    stage.until("all have ranges", seconds(20), || {
        NODES.iter().try_fold(true, |all, name| Ok(all && of(name)?.len() == 2))
    })?;
    let mut all = BTreeSet::new();
    for name in NODES {
        all.extend(of(name)?);
    }
    ensure!(all.len() == 12, "{all:?}");
    ensure!(!all.contains("10.244.0.0/24"), "the service range is left out");
    // What a node that goes leaves behind is given out again in its turn, never twice at a time.
    stage.delete_node("n5")?;
    stage.join(&["n5"], "a")?;
    stage.until("the new one has ranges", seconds(10), || Ok(of("n5")?.len() == 2))?;
    let mut all = BTreeSet::new();
    for name in NODES {
        all.extend(of(name)?);
    }
    ensure!(all.len() == 12, "{all:?}");
    Ok(())
}

fn all_ranges(stage: &ClusterTest<'_>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for name in stage.all_nodes()? {
        all.extend(stage.node(&name)?.spec.pod_cidrs);
    }
    Ok(all)
}

/// A controller that has just started knows which ranges are taken, also those that another one
/// assigned twice.
fn occupied_ranges(stage: &ClusterTest<'_>) -> Result<()> {
    let taken = stage.node("n0")?.spec.pod_cidrs;
    let spec = json!({"podCIDR": taken.first(), "podCIDRs": taken});
    stage.mute_node("twin", &spec)?;
    stage.until("the clash is told", seconds(10), || {
        Ok(stage.reasons("twin")?.contains("CIDRConflict"))
    })?;
    // One of the two leaves; the ranges are not free.
    stage.delete_node("twin")?;
    stage.join(&["n6", "n7"], "a")?;
    stage.until("the new ones have ranges", seconds(10), || {
        Ok(stage.node("n6")?.spec.pod_cidrs.len() == 2
            && stage.node("n7")?.spec.pod_cidrs.len() == 2)
    })?;
    ensure!(stage.node("n0")?.spec.pod_cidrs == taken, "what a node has it keeps");
    let all = all_ranges(stage)?;
    let distinct: BTreeSet<&String> = all.iter().collect();
    ensure!((all.len(), distinct.len()) == (16, 16), "{all:?}");
    Ok(())
}

fn silence_and_return(stage: &ClusterTest<'_>) -> Result<()> {
    stage.run_pod("soon", "n1", &bears(Some(3)))?;
    stage.run_pod("never", "n1", &bears(None))?;
    stage.run_pod("elsewhere", "n2", &json!([]))?;
    // The nodes' clocks do not matter: only whether heartbeats arrive.
    for (name, ahead) in [("n1", 10 * YEAR), ("n2", 10 * YEAR), ("n5", -30 * YEAR)] {
        stage.hollow.set_clock(name, ahead);
    }
    stage.mute_node("mute", &json!({}))?;
    stage.runtime.block_on(stage.hollow.post("n3", &[("Ready", "False")]))?;
    stage.until("not ready by its own word", seconds(15), || {
        Ok(stage.taints("n3")? == ["not-ready:NoExecute", "not-ready:NoSchedule"])
    })?;
    let last_heartbeat = stage.hollow.stop_heartbeats(&["n1", "n3"]);
    let last_heartbeat = last_heartbeat.get("n1").context("n1 beats")?.into_std();
    stage.until("Unknown", seconds(30), || Ok(stage.ready("n1")? == "Unknown"))?;
    let took = last_heartbeat.elapsed();
    ensure!(took >= GRACE && took < GRACE + seconds(20), "noticed after {took:?}");
    let node = stage.node("n1")?;
    for condition in node.status.conditions.iter().filter(|it| it.kind != "NetworkUnavailable") {
        ensure!(condition.reason == "NodeStatusUnknown", "{condition:?}");
        ensure!(condition.message == "Kubelet stopped posting node status.", "{condition:?}");
    }
    stage.until("given up", seconds(5), || Ok(stage.taints("n1")? == LOST))?;
    stage.until("one taint takes the other's place", seconds(5), || {
        Ok(stage.ready("n3")? == "Unknown" && stage.taints("n3")? == LOST)
    })?;
    never_ready_node(stage)?;
    let condition = |pod: &str, kind: &str| -> Result<Option<(String, String)>> {
        let pod = stage.pod(pod)?.context("the pod is there")?;
        let found = pod.status.conditions.into_iter().find(|it| it.kind == kind);
        Ok(found.map(|it| (it.status, it.reason)))
    };
    stage.until("marked", seconds(5), || {
        Ok(condition("never", "Ready")?.is_some_and(|it| it.0 == "False"))
    })?;
    stage.until("sent away", seconds(10), || Ok(!stage.is_kept("soon")?))?;
    let tolerated_for = tolerated_for(stage, "soon", "n1")?;
    ensure!(tolerated_for >= 2, "not before its time: {tolerated_for} s");
    let expected = ("True".to_owned(), "DeletionByTaintManager".to_owned());
    ensure!(condition("soon", "DisruptionTarget")? == Some(expected), "the condition");
    stage.until("told", seconds(30), || {
        let of_node = stage.reasons("n1")?;
        Ok(stage.reasons("soon")?.contains("TaintManagerEviction")
            && of_node.contains("RegisteredNode")
            && of_node.contains("NodeNotReady"))
    })?;

    // Its clock goes back by forty years, and that is a sign of life.
    stage.hollow.set_clock("n1", -30 * YEAR);
    stage.runtime.block_on(stage.hollow.resume_heartbeats(&["n1", "n3"]))?;
    stage.until("well again", seconds(5), || {
        Ok(stage.taints("n1")?.is_empty() && stage.taints("n3")?.is_empty())
    })?;
    ensure!(stage.is_kept("never")? && stage.is_kept("elsewhere")?, "the others stay");
    stage.stays("all are well", GRACE + seconds(1), || {
        NODES.iter().try_fold(true, |well, name| {
            Ok(well && stage.ready(name)? == "True" && stage.taints(name)?.is_empty())
        })
    })?;
    // Not only now: no other node was ever called lost.
    let writes = stage.audit()?.writes()?;
    let called = writes.iter().filter(|write| write.resource == "nodes/status");
    let called: BTreeSet<&str> = called.map(|write| write.name.as_str()).collect();
    ensure!(called == ["mute", "n1", "n3"].into(), "{called:?} were called lost");
    Ok(())
}

/// A node that never posted a status is distinguished from one that stopped.
fn never_ready_node(stage: &ClusterTest<'_>) -> Result<()> {
    stage.until("the mute one is given up", seconds(20), || Ok(stage.taints("mute")? == LOST))?;
    for condition in stage.node("mute")?.status.conditions {
        ensure!(condition.status == "Unknown", "{condition:?}");
        ensure!(condition.reason == "NodeStatusNeverUpdated", "{condition:?}");
        ensure!(condition.message == "Kubelet never posted node status.", "{condition:?}");
    }
    stage.delete_node("mute")
}

fn pressure_and_cordon(stage: &ClusterTest<'_>) -> Result<()> {
    const CONDITIONS: [&str; 4] =
        ["DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"];
    let all = |status| CONDITIONS.map(|kind| (kind, status));
    stage.runtime.block_on(stage.hollow.post("n2", &all("True")))?;
    stage.cluster.plane.kubectl(&["cordon", "n2"])?;
    let expected = [
        "disk-pressure:NoSchedule",
        "memory-pressure:NoSchedule",
        "network-unavailable:NoSchedule",
        "pid-pressure:NoSchedule",
        "unschedulable:NoSchedule",
    ];
    stage.until("tainted", seconds(5), || Ok(stage.taints("n2")? == expected))?;
    stage.runtime.block_on(stage.hollow.post("n2", &all("False")))?;
    stage.cluster.plane.kubectl(&["uncordon", "n2"])?;
    stage.until("free", seconds(5), || Ok(stage.taints("n2")?.is_empty()))?;
    Ok(())
}

/// A toleration's time goes on while no controller runs.
fn tolerations_survive(
    stage: &ClusterTest<'_>,
    mut controller: node_testkit::start::RunningPart,
) -> Result<node_testkit::start::RunningPart> {
    stage.run_pod("later", "n3", &bears(Some(25)))?;
    stage.hollow.stop_heartbeats(&["n3"]);
    stage.until("given up", seconds(20), || Ok(stage.taints("n3")?.len() == 2))?;
    std::thread::sleep(seconds(2));
    controller.kill()?;
    std::thread::sleep(seconds(6));
    let controller = stage.controller("controller-2", RANGES)?;
    stage.until("sent away", seconds(40), || Ok(!stage.is_kept("later")?))?;
    let after = tolerated_for(stage, "later", "n3")?;
    ensure!((24..=40).contains(&after), "sent away after {after} s");
    stage.runtime.block_on(stage.hollow.resume_heartbeats(&["n3"]))?;
    stage.until("well again", seconds(5), || Ok(stage.taints("n3")?.is_empty()))?;
    Ok(controller)
}

fn ended_pods(stage: &ClusterTest<'_>) -> Result<()> {
    for name in ["job-0", "job-1", "job-2", "job-3"] {
        stage.run_pod(name, "n0", &bears(None))?;
        let ended = json!({"status": {"phase": "Succeeded"}});
        stage.patch(&ObjectPath::pod("default", name), true, &ended)?;
        // Ages differ by whole seconds.
        std::thread::sleep(Duration::from_millis(1100));
    }
    stage.until("the oldest are gone", seconds(40), || {
        Ok(stage.pod("job-0")?.is_none() && stage.pod("job-1")?.is_none())
    })?;
    ensure!(stage.is_kept("job-2")? && stage.is_kept("job-3")?, "as many as may stay");
    Ok(())
}
