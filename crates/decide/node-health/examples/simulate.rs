//! The big simulation (`cargo xtask simulate`): `simulate [RUNS [NODES [ZONES [SECONDS
//! [FIRST_SEED]]]]]`.
//!
//! Prints what was tested, how close it came to each limit, and every violation with the seed that
//! reproduces it; exits with 1 if there was one.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program for people: it has arguments and an exit code"
)]

#[path = "../tests/world/mod.rs"]
mod world;

use std::process::ExitCode;

use world::{LARGE_ABOVE, SimulationPlan, SimulationReport, run};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default: u64| match numbers.next() {
        None => Ok(default),
        Some(number) => number,
    };
    let arguments = (|| {
        Ok::<_, std::num::ParseIntError>([
            next(10)?,
            next(15_000)?,
            next(12)?,
            next(1_200)?,
            next(0)?,
        ])
    })();
    let Ok([runs, nodes, zones, seconds, first]) = arguments else {
        eprintln!(
            "usage: simulate [RUNS [NODES [ZONES [SECONDS [FIRST_SEED]]]]], all of them numbers"
        );
        return ExitCode::from(2);
    };
    let mut total = SimulationReport::default();
    for seed in first..first.saturating_add(runs) {
        let plan = SimulationPlan {
            nodes: usize::try_from(nodes).unwrap_or(1).max(1),
            zones: usize::try_from(zones).unwrap_or(1).max(1),
            seconds: i64::try_from(seconds).unwrap_or(1),
            seed,
            fenced: true,
            large_above: LARGE_ABOVE,
        };
        let report = run(plan);
        for violation in &report.violations {
            println!("seed {seed}: {violation}");
        }
        total.add(report);
    }
    let violations = std::mem::take(&mut total.violations).len();
    println!(
        "{runs} runs of {nodes} nodes in {zones} zones, {seconds} s each: {violations} violations"
    );
    println!(
        "the stalest eviction: {} s after the node said that it was well, {} s after it was; by what \
         a dead controller had sent: {} s",
        total.stalest_eviction, total.longest_unheard, total.stalest_of_the_dead
    );
    println!(
        "ranges that a dead controller had sent: {} arrived late, {} were taken, {} were refused \
         while another node had the range; {} fences of {} nodes, {} given up",
        total.late_ranges,
        total.late_ranges_taken,
        total.clashes_averted,
        total.fences,
        total.touches,
        total.fences_abandoned
    );
    println!("{total:#?}");
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
