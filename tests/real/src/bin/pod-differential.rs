//! Gives pods to a real API server's dry run and to our own parser and validation: same verdict,
//! same fields refused, same defaults. Run by verb, in a bed:
//! `bed run -- pod-differential [PODS [SEED]]`.
//!
//! The rule it keeps: every row of the table of verdicts is tried unchanged; after that come pods
//! mixed from rows and damaged at random, all from one seed. The API server runs without the
//! admission plugins that change or refuse pods for reasons outside the pod. It prints each
//! difference and fails if there is one.

use anyhow::{Context, Result, ensure};
use node_testkit::bed;
use real_tests::pod_differential::{ApiServer, Generator, PodComparison, compare};

const PODS: usize = 300;
const SEED: u64 = 1;

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: bed run -- pod-differential")?;
    let mut arguments = std::env::args().skip(1);
    let pods = arguments.next().map_or(Ok(PODS), |text| text.parse()).context("PODS")?;
    let seed = arguments.next().map_or(Ok(SEED), |text| text.parse()).context("SEED")?;
    let server = ApiServer::start(&bed)?;
    let mut generator = Generator::new(seed);
    let rows = generator.rows();
    let mut total = PodComparison::default();
    for index in 0..rows + pods {
        let pod = if index < rows { generator.row(index) } else { generator.mixed() };
        let found = compare(&server, &pod).with_context(|| format!("pod {index}: {pod}"))?;
        for difference in &found.differences {
            println!("pod {index}: {difference}\n    {pod}");
        }
        total.add(found);
    }
    println!(
        "{} pods, seed {seed}: {} taken, {} invalid, {} unreadable, {} differences",
        rows + pods,
        total.taken,
        total.invalid,
        total.unreadable,
        total.differences.len()
    );
    ensure!(total.differences.is_empty(), "{} differences", total.differences.len());
    Ok(())
}
