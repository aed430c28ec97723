//! A few small seeded runs of the simulation; `examples/simulate.rs` does the thousand big ones.

mod world;

use world::{Plan, Report, run};

fn runs(nodes: usize, zones: usize, seconds: i64, seeds: std::ops::Range<u64>) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        let report = run(Plan { nodes, zones, seconds, seed, fenced: true });
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
    assert!(report.fences > 10 && report.fences_given_up > 0, "{report:?}");
}

/// The observer would notice: where nobody fences off what the dead had sent, two nodes get one range.
#[test]
fn without_a_fence_a_range_is_handed_out_twice() {
    let (mut clashes, mut late) = (0, 0);
    for seed in 0..20 {
        let plan = Plan { nodes: 120, zones: 4, seconds: 2_000, seed, fenced: false };
        let report = run(plan);
        clashes += report.violations.iter().filter(|it| it.contains("given to node")).count();
        late += report.late_ranges_taken;
    }
    assert!(clashes > 0 && late > 0, "{clashes} clashes, {late} late writes taken");
}

#[test]
fn large_zones() {
    let report = runs(600, 3, 2_000, 100..109);
    assert!(report.given_up_slowly > 5, "{report:?}");
    assert!(report.ranges > 3_000, "{report:?}");
}

#[test]
fn one_zone() {
    let report = runs(40, 1, 3_000, 200..206);
    assert!(report.outages_noticed > 50, "{report:?}");
}
