//! Our controller behind an API server that rejects every second write, lets every watch expire and
//! loses responses: it taints every silent node and no others.

use std::time::Duration;

use anyhow::{Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;
use real_tests::node_controller::faulty;
use real_tests::node_controller::recorder::ChangeRecorder;

use crate::stage::{ClusterTest, LOST, bears};

const WELL: [&str; 5] = ["w0", "w1", "w2", "w3", "w4"];
const SILENT: [&str; 3] = ["s0", "s1", "s2"];
/// A watch that expires is reopened after a back-off that grows as upstream's does, and no node is
/// tainted on a stale cache: on a busy machine that can take several attempts.
const WAIT_LIMIT: Duration = Duration::from_secs(200);

#[test]
fn a_faulty_api_server_delays_the_controller_and_changes_no_result() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(15)).run(|bed| {
        let stage = ClusterTest::new(bed, &keelson)?;
        stage.join(&WELL, "a")?;
        stage.join(&SILENT, "a")?;
        for node in WELL.iter().chain(&SILENT) {
            stage.run_pod(&format!("go-{node}"), node, &bears(Some(0)))?;
            stage.run_pod(&format!("stay-{node}"), node, &bears(None))?;
        }
        let recorder =
            stage.runtime.block_on(async { ChangeRecorder::start(&stage.cluster.client) });
        let (kubeconfig, faults) = stage.runtime.block_on(faulty::open(bed, &stage.cluster))?;
        let flags = ["--node-monitor-grace-period=4s"];
        let mut controller = stage.controller_by("controller", &kubeconfig, &flags)?;
        let all_well = |names: &[&str]| -> Result<bool> {
            names.iter().try_fold(true, |well, name| {
                Ok(well && stage.ready(name)? == "True" && stage.taints(name)?.is_empty())
            })
        };
        let unreachable = |name: &str| -> Result<bool> {
            Ok(stage.ready(name)? == "Unknown"
                && stage.taints(name)? == LOST
                && !stage.is_kept(&format!("go-{name}"))?
                && stage.is_kept(&format!("stay-{name}"))?
                && !stage.is_pod_ready(&format!("stay-{name}"))?)
        };
        stage
            .until("all are taken up", WAIT_LIMIT, || Ok(all_well(&WELL)? && all_well(&SILENT)?))?;
        stage.hollow.stop_heartbeats(&SILENT[..2]);
        let took = stage.until("two are given up", WAIT_LIMIT, || {
            Ok(unreachable(SILENT[0])? && unreachable(SILENT[1])?)
        })?;
        println!("given up after {took:?}: {:?}", faults.count());
        // One comes back while another goes.
        stage.runtime.block_on(stage.hollow.resume_heartbeats(&SILENT[1..2]))?;
        stage.hollow.stop_heartbeats(&SILENT[2..]);
        let took = stage.until("one is back, one is given up", WAIT_LIMIT, || {
            Ok(all_well(&SILENT[1..2])? && unreachable(SILENT[2])?)
        })?;
        let count = faults.count();
        println!("one is back and one given up after {took:?}: {count:?}");
        ensure!(unreachable(SILENT[0])? && all_well(&WELL)?, "the others are as they were");
        // Not only at the end: nothing was ever written about nodes that were well.
        for entry in recorder.so_far().iter().filter(|it| WELL.contains(&it.node.as_str())) {
            let wrong = ["=Unknown", "unreachable", "terminating", "Ready=False", "gone"];
            let is_wrong = wrong.iter().any(|word| entry.what.contains(word));
            ensure!(!is_wrong, "{}, which is well: {}", entry.node, entry.what);
        }
        ensure!(count.conflicts >= 20 && count.expired >= 6 && count.cuts >= 3, "{count:?}");
        ensure!(controller.is_alive()?, "it lives");
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(!log.contains("panicked"), "{log}");
        Ok(())
    })
}
