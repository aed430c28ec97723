//! `cargo xtask bench node-controller`: the node controller and kube-controller-manager with the
//! same controllers only, on one control plane with hollow nodes, one after the other. Measures
//! memory from smaps and CPU time from the kernel, after a burst; and the time from a node's last
//! heartbeat to Unknown. Then the same with 5 000 nodes whose leases are replayed. Prints tables
//! with ratios; a broken promise of SPECIFICATION.md is an error.
//!
//! Runs inside a bed: `bed run -- node-controller-bench KEELSON [NODES]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use node_testkit::{bed, parts};
use real_tests::cold_program;
use real_tests::node_controller::cluster::{ControllerUnderTest, TestCluster};
use real_tests::node_controller::hollow::{HollowNodePool, NewNode};
use real_tests::node_controller::load::{ControllerBenchResult, HeartbeatLoad};
use real_tests::node_controller::replay;
use real_tests::promises::BenchTable;

const LIVE_NODES: usize = 1_000;
const REPLAYED_NODES: usize = 5_000;
const ZONES: usize = 4;
const PODS_PER_NODE: usize = 3;
/// A kubelet's lease renewal interval.
const HEARTBEAT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench")?;
    let mut arguments = std::env::args_os().skip(1);
    let keelson =
        arguments.next().context("usage: node-controller-bench KEELSON [LIVE [REPLAYED]]")?;
    let mut count = |default: usize| -> Result<usize> {
        let text = arguments.next().map(|text| text.to_string_lossy().into_owned());
        text.map_or(Ok(default), |text| text.parse().context("a number of nodes"))
    };
    let (live, replayed) = (count(LIVE_NODES)?, count(REPLAYED_NODES)?);
    let reference = parts::program("kube-controller-manager", "kube-controller-manager")?;
    for program in [Path::new(&keelson), &reference] {
        cold_program::forget(program)?;
    }
    let subjects =
        [ControllerUnderTest::Keelson(PathBuf::from(keelson)), ControllerUnderTest::Reference];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut table = BenchTable::default();
    if live > 0 {
        let [ours, theirs] = runtime.block_on(run_live(&bed, &subjects, live))?;
        print(&mut table, &format!("{live} live hollow nodes"), &ours, &theirs);
    }
    if replayed > 0 {
        // The next cluster begins empty.
        let _ = std::fs::remove_dir_all(bed.dir().join("control-plane"));
        let [ours, theirs] = runtime.block_on(replay::run(&bed, &subjects, replayed))?;
        print(&mut table, &format!("{replayed} nodes by replayed watches"), &ours, &theirs);
    }
    table.judge()
}

async fn run_live(
    bed: &bed::Bed,
    subjects: &[ControllerUnderTest; 2],
    count: usize,
) -> Result<[ControllerBenchResult; 2]> {
    let cluster = TestCluster::start(bed)?;
    let hollow = HollowNodePool::new(cluster.client.clone(), HEARTBEAT);
    let beating = tokio::spawn(hollow.clone().heartbeat());
    let forms = (0..count)
        .map(|number| NewNode::in_zone(&format!("n{number}"), &format!("z{}", number % ZONES)));
    eprintln!("making {count} nodes");
    hollow.register(forms.collect()).await?;
    let load = HeartbeatLoad::new(&cluster, hollow, ZONES);
    load.make_pods(count, PODS_PER_NODE).await?;
    load.settle(bed, &cluster, &subjects[0]).await?;
    let mut numbers = Vec::new();
    for subject in subjects {
        numbers.push(load.measure(bed, &cluster, subject).await.context(subject.name())?);
    }
    beating.abort();
    let numbers: Result<[ControllerBenchResult; 2], _> = numbers.try_into();
    numbers.ok().context("two subjects")
}

fn print(
    table: &mut BenchTable,
    title: &str,
    ours: &ControllerBenchResult,
    theirs: &ControllerBenchResult,
) {
    table.heading(title, "reference");
    for row in ours.beside(theirs) {
        table.row(&row);
    }
}
