//! A controller dies at each of its crash points, one after the other, while nodes stop their
//! heartbeats; the next controller finishes the work.
//!
//! Rule: every point is hit, or the test fails. Each controller that dies has its own node to
//! taint, so that its point is always ahead of it, whatever those before it completed.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use node_controller::crash_points;
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;

use crate::stage::{ClusterTest, LOST, bears, seconds};

const WELL: [&str; 8] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"];
const SILENT: [&str; 5] = ["s0", "s1", "s2", "s3", "s4"];
/// It joins while no controller runs, and has no range when the next one starts.
const LATE: &str = "late";
/// These join with ranges, before any node stops its heartbeats.
const AT_THE_START: usize = 2;
const FLAGS: &[&str] = &[
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/20",
    "--node-cidr-mask-size=24",
];

#[test]
fn a_new_controller_finishes_the_work_of_one_that_died_after_any_write() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(6)).run(|bed| {
        let stage = ClusterTest::new(bed, &keelson)?;
        stage.join(&WELL, "a")?;
        stage.join(&SILENT, "a")?;
        for node in WELL.iter().chain(&SILENT) {
            stage.run_pod(&format!("go-{node}"), node, &bears(Some(0)))?;
            stage.run_pod(&format!("stay-{node}"), node, &bears(None))?;
        }
        let mut silent = SILENT.iter();
        for (number, point) in crash_points::ALL.iter().enumerate() {
            if *point == "node-touched" {
                // The one before it may have given all of them their ranges with its last breath.
                stage.join(&[LATE], "a")?;
            }
            if number >= AT_THE_START
                && let Some(node) = silent.next()
            {
                stage.hollow.stop_heartbeats(&[node]);
            }
            die_at(&stage, &format!("controller-{number}"), point)?;
        }
        ensure!(silent.next().is_none(), "a node for each point after those of ranges");
        let last = stage.controller("last", FLAGS)?;
        stage.until("all is done", seconds(60), || is_right(&stage))?;
        let log = std::fs::read_to_string(last.log())?;
        ensure!(!log.contains("panicked"), "{log}");
        Ok(())
    })
}

fn die_at(stage: &ClusterTest<'_>, name: &str, point: &str) -> Result<()> {
    let process = std::cell::RefCell::new(stage.dying_controller(name, FLAGS, point)?);
    let took = stage.until(point, seconds(60), || Ok(!process.borrow_mut().is_alive()?))?;
    let log = std::fs::read_to_string(process.borrow().log())?;
    // Its last words may be lost with it; those of a panic would be there.
    ensure!(!log.contains("panicked") && !log.contains("Error:"), "{name}: {log}");
    println!("{name} died at {point} after {:.1} s", took.as_secs_f64());
    Ok(())
}

/// Every node has its own range; nodes with heartbeats are untainted, silent ones are tainted, and
/// their pods without a toleration are deleted.
fn is_right(stage: &ClusterTest<'_>) -> Result<bool> {
    let mut ranges = BTreeSet::new();
    for node in WELL.iter().chain(&SILENT).chain(&[LATE]) {
        let range = stage.node(node)?.spec.pod_cidr;
        if range.is_empty() {
            return Ok(false);
        }
        ensure!(ranges.insert(range.clone()), "{range} twice");
    }
    for node in WELL {
        let (go, stay) = (format!("go-{node}"), format!("stay-{node}"));
        let kept = stage.is_kept(&go)? && stage.is_kept(&stay)? && stage.is_pod_ready(&stay)?;
        ensure!(kept && stage.ready(node)? == "True" && stage.taints(node)?.is_empty(), "{node}");
    }
    for node in SILENT {
        let (go, stay) = (format!("go-{node}"), format!("stay-{node}"));
        ensure!(stage.is_kept(&stay)?, "{stay} bears it");
        let unreachable = stage.ready(node)? == "Unknown" && stage.taints(node)? == LOST;
        if !unreachable || stage.is_kept(&go)? || stage.is_pod_ready(&stay)? {
            return Ok(false);
        }
    }
    Ok(true)
}
