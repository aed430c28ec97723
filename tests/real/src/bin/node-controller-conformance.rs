//! Runs the node controller and the real kube-controller-manager through the same script of events,
//! in a bed: `bed run -- node-controller-conformance KEELSON [LIST]`. Prints every difference and
//! fails unless they are exactly those of the checked-in list.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use node_testkit::bed;
use real_tests::metric_families::{self, ScrapedFamily};
use real_tests::node_controller::cluster::ControllerUnderTest;
use real_tests::node_controller::comparison::{differences, known, turns, verdict};
use real_tests::node_controller::script;

/// Prefix of metrics that only Keelson has.
const OWN_PREFIX: &str = "keelson_";
/// Number of metrics that a scraper of the node controllers expects.
const EXPECTED_METRICS: usize = 15;
/// Exposed only after the first error of its kind, which one of the two may not have had.
const AFTER_ERRORS_ONLY: &[&str] =
    &["leader_election_slowpath_total", "pod_gc_collector_force_delete_pod_errors_total"];

/// Checks that every metric of ours has the reference's name, kind, labels and bounds.
fn compare_metrics(
    ours: &BTreeMap<String, ScrapedFamily>,
    theirs: &BTreeMap<String, ScrapedFamily>,
) -> Result<()> {
    let shared: BTreeMap<String, ScrapedFamily> = ours
        .iter()
        .filter(|(name, _)| !name.starts_with(OWN_PREFIX))
        .map(|(name, family)| (name.clone(), family.clone()))
        .collect();
    ensure!(shared.len() >= EXPECTED_METRICS, "only {:?}", shared.keys());
    let wrong = metric_families::differences(&shared, theirs, AFTER_ERRORS_ONLY);
    ensure!(wrong.is_empty(), "metrics:\n{}", wrong.join("\n"));
    println!("{} metrics, named, labelled and bounded as the reference's", shared.len());
    Ok(())
}

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask conformance")?;
    let keelson =
        std::env::args_os().nth(1).context("usage: node-controller-conformance KEELSON")?;
    let version = node_testkit::parts::version("kube-controller-manager")?;
    let list = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("goldens/node-controller-differences-{version}.txt"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (ours, our_metrics) = runtime
        .block_on(script::run(&bed, &ControllerUnderTest::Keelson(PathBuf::from(keelson))))?;
    // The next cluster begins empty.
    std::fs::remove_dir_all(bed.dir().join("control-plane"))?;
    let (theirs, their_metrics) =
        runtime.block_on(script::run(&bed, &ControllerUnderTest::Reference))?;
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let seconds = |record: &script::PhaseRecord| {
            record.noticed.map_or("-".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        println!(
            "{:<36} changes {:>4} and {:>4}, silence noticed after {:>6} and {:>6}",
            ours.name,
            ours.entries.len(),
            theirs.entries.len(),
            seconds(ours),
            seconds(theirs)
        );
    }
    let (pairs, _) = turns(&ours, &theirs);
    println!("order between nodes: {pairs} pairs compared");
    ensure!(pairs > 0, "no two nodes were given up whose order could be compared");
    compare_metrics(&our_metrics, &their_metrics)?;
    let found = differences(&ours, &theirs);
    for difference in &found {
        println!("difference: {difference}");
    }
    let text = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let wrong = verdict(&found, &known(&text));
    ensure!(wrong.is_empty(), "{}:\n{wrong}", list.display());
    println!("{} phases, {} differences, all of them known", ours.len(), found.len());
    Ok(())
}
