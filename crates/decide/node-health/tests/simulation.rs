//! A few small seeded runs of the simulation; `examples/simulate.rs` does the thousand big ones.

mod world;

use world::{Plan, Report, run};

fn runs(nodes: usize, zones: usize, seconds: i64, seeds: std::ops::Range<u64>) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        let report = run(Plan { nodes, zones, seconds, seed });
        assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations);
        total.add(report);
    }
    total
}

#[test]
fn small_zones() {
    let report = runs(120, 4, 2_000, 0..12);
    assert!(report.outages_noticed > 500, "{report:?}");
    assert!(report.given_up > 100, "{report:?}");
    assert!(report.pods_deleted > 50, "{report:?}");
    assert!(report.pods_marked > 1_000, "{report:?}");
    assert!(report.restarts > 20 && report.blind > 20 && report.stalls > 20, "{report:?}");
    assert!(report.blackouts > 5 && report.dark_seconds > 200, "{report:?}");
    assert!(report.strays > 50 && report.strays_taken > 30, "{report:?}");
}

#[test]
fn large_zones() {
    let report = runs(600, 3, 2_000, 100..106);
    assert!(report.given_up_slowly > 5, "{report:?}");
    assert!(report.ranges > 3_000, "{report:?}");
}

#[test]
fn one_zone() {
    let report = runs(40, 1, 3_000, 200..206);
    assert!(report.outages_noticed > 50, "{report:?}");
}
