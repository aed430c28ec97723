//! The eviction rates, measured by the times of taints on a real API server: the normal rate while
//! a zone is healthy enough, the secondary rate in a large zone that is mostly unhealthy.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;

use crate::stage::{ClusterTest, seconds};

const NODES: [&str; 9] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"];
/// One in two seconds, and one in four.
const FLAGS: &[&str] = &[
    "--node-monitor-grace-period=4s",
    "--node-eviction-rate=0.5",
    "--secondary-node-eviction-rate=0.25",
    "--large-cluster-size-threshold=5",
];

#[test]
fn nodes_are_tainted_at_the_configured_eviction_rates() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(4)).run(|bed| {
        let stage = ClusterTest::new(bed, &keelson)?;
        stage.join(&NODES, "r")?;
        let mut controller = stage.controller("controller", FLAGS)?;
        stage.until("all are well", seconds(30), || {
            NODES.iter().try_fold(true, |well, name| Ok(well && stage.taints(name)?.is_empty()))
        })?;
        // Four of nine: the zone is well enough.
        unreachable(&stage, &NODES[..4], seconds(2)).context("the normal rate")?;
        // With the fifth it is not, and nine nodes are many here.
        unreachable(&stage, &NODES[4..7], seconds(4)).context("the secondary rate")?;
        for name in &NODES[7..] {
            ensure!(stage.ready(name)? == "True" && stage.taints(name)?.is_empty(), "{name}");
        }
        ensure!(controller.is_alive()?, "it lives");
        Ok(())
    })
}

/// They stop their heartbeats together and are tainted one by one: never sooner after each other
/// than the rate allows, and no later than a busy machine explains.
fn unreachable(stage: &ClusterTest<'_>, nodes: &[&str], interval: Duration) -> Result<()> {
    stage.hollow.stop_heartbeats(nodes);
    let when = |name: &str| -> Result<Option<i64>> {
        let taints = stage.node(name)?.spec.taints;
        let taint = taints.into_iter().find(|taint| taint.effect == "NoExecute");
        let Some(taint) = taint else { return Ok(None) };
        let added = taint.time_added.context("a taint that sends away has its time")?;
        Ok(Some(added.nanos() / 1_000_000_000))
    };
    stage.until("all are given up", seconds(60), || {
        nodes.iter().try_fold(true, |all, name| Ok(all && when(name)?.is_some()))
    })?;
    let mut times = Vec::new();
    for name in nodes {
        times.extend(when(name)?);
    }
    times.sort_unstable();
    println!("one in {interval:?}: {times:?}");
    let interval = i64::try_from(interval.as_secs())?;
    for (at, later) in times.iter().enumerate() {
        for (distance, earlier) in times.iter().take(at).rev().enumerate() {
            let least = (i64::try_from(distance)? + 1) * interval;
            // The API keeps whole seconds, and a time is written shortly after the decision: 2.99
            // after 1.00 reads as 2 after 1.
            ensure!(later - earlier >= least - 1, "{times:?}: too fast for one in {interval} s");
        }
    }
    let (first, last) = (times.first().context("some")?, times.last().context("some")?);
    let all = i64::try_from(times.len())? - 1;
    ensure!(last - first <= all * interval + 20, "{times:?}: too slow for one in {interval} s");
    Ok(())
}
