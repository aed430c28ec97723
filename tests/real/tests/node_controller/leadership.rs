//! Two instances on a real API server: one is killed while nothing happens, and then the API server
//! itself is unavailable; and client-go's own election as a rival for the same lease. `fight`
//! covers interruptions while they work.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;
use rustix::process::Signal;

use crate::stage::{ClusterTest, bears, seconds, signal};

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];

#[test]
fn leader_changes_taint_no_node() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(6)).run(|bed| {
        let mut stage = ClusterTest::new(bed, &keelson)?;
        stage.join(&NODES, "a")?;
        for node in NODES {
            stage.run_pod(&format!("pod-{node}"), node, &bears(Some(1)))?;
        }
        let mut first = stage.controller("first", &[])?;
        stage.until("the first leads", seconds(20), || Ok(!stage.holder().is_empty()))?;
        let leader = stage.holder();
        let second = stage.controller("second", &[])?;
        let well = |stage: &ClusterTest<'_>| -> Result<bool> {
            for node in NODES {
                if stage.ready(node)? != "True" || !stage.is_kept(&format!("pod-{node}"))? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        stage.stays("the first goes on", seconds(4), || Ok(stage.holder() == leader))?;
        // Killed: the second follows once the lease has run out.
        first.kill()?;
        let took = stage.until("taken over", seconds(20), || {
            // An empty holder is also what a failed request looks like.
            let holder = stage.holder();
            Ok(!holder.is_empty() && holder != leader)
        })?;
        ensure!(took >= seconds(3), "not before the lease could have run out: {took:?}");
        // Longer than the grace period: heartbeats missed while there was no leader do not count.
        stage.stays("all are well", seconds(9), || well(&stage))?;
        // The API server is unavailable to all clients for longer than the grace period.
        signal(stage.cluster.plane.api_server(), Signal::STOP)?;
        std::thread::sleep(seconds(12));
        signal(stage.cluster.plane.api_server(), Signal::CONT)?;
        let began = Instant::now();
        while began.elapsed() < seconds(12) {
            // An answer may fail at first; a wrong one may not come.
            ensure!(well(&stage).unwrap_or(true), "somebody was condemned for our absence");
            std::thread::sleep(Duration::from_millis(300));
        }
        // The current leader still detects a silent node.
        stage.hollow.stop_heartbeats(&["n2"]);
        stage.until("noticed", seconds(40), || Ok(stage.ready("n2")? == "Unknown"))?;
        stage.until("sent away", seconds(20), || Ok(!stage.is_kept("pod-n2")?))?;
        // Asked to end, the lease is free at once.
        drop(second);
        stage.until("free", seconds(5), || Ok(stage.holder().is_empty()))?;
        a_rival_of_another_make(&stage).context("a rival of another make")
    })
}

/// The real kube-controller-manager competes for our lease: each understands the other's records.
fn a_rival_of_another_make(stage: &ClusterTest<'_>) -> Result<()> {
    const RIVAL: &[&str] = &[
        "--controllers=ttl-after-finished-controller",
        "--leader-elect-resource-name=keelson-node-controller",
        "--leader-elect-resource-namespace=kube-system",
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ];
    // Longer than the lease's six seconds.
    let long = seconds(8);
    let transitions = || {
        let lease = stage.lease("kube-system", "keelson-node-controller")?;
        anyhow::Ok(lease.spec.lease_transitions.unwrap_or(0))
    };
    let mut ours = stage.controller("third", &[])?;
    stage.until("ours leads", seconds(20), || Ok(!stage.holder().is_empty()))?;
    let (leader, before) = (stage.holder(), transitions()?);
    let mut rival = stage.reference("rival", RIVAL)?;
    let tries = || Ok(std::fs::read_to_string(rival.log())?.contains("leaderelection"));
    stage.until("the rival tries", seconds(30), tries)?;
    stage.stays("it waits while ours renews", long, || Ok(stage.holder() == leader))?;
    ours.kill()?;
    let taken_from = |leader: &str| {
        let holder = stage.holder();
        Ok(!holder.is_empty() && holder != leader)
    };
    let took = stage.until("the rival takes over", seconds(20), || taken_from(&leader))?;
    ensure!(took >= seconds(3), "not before the lease could have run out: {took:?}");
    let theirs = stage.holder();
    let mut ours = stage.controller("fourth", &[])?;
    stage.stays("ours waits while the rival renews", long, || Ok(stage.holder() == theirs))?;
    ensure!(ours.is_alive()? && rival.is_alive()?, "both live");
    rival.kill()?;
    let took = stage.until("ours takes over", seconds(20), || taken_from(&theirs))?;
    ensure!(took >= seconds(3), "not before the lease could have run out: {took:?}");
    ensure!(transitions()? == before + 2, "both count changes of hands alike");
    Ok(())
}
