//! A few small seeded runs of the simulation; `examples/simulate.rs` does the thousand big ones.

mod world;

use world::{LARGE_ABOVE, SimulationPlan, SimulationReport, run};

fn runs(nodes: usize, zones: usize, seconds: i64, seeds: std::ops::Range<u64>) -> SimulationReport {
    let mut total = SimulationReport::default();
    for seed in seeds {
        let plan =
            SimulationPlan { nodes, zones, seconds, seed, fenced: true, large_above: LARGE_ABOVE };
        let report = run(plan);
        assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations);
        total.add(report);
    }
    total
}

#[test]
fn small_zones() {
    let report = runs(120, 4, 2_000, 0..12);
    assert!(report.outages_detected > 500, "{report:?}");
    assert!(report.no_execute_tainted > 100, "{report:?}");
    assert!(report.pods_deleted > 50, "{report:?}");
    assert!(report.pods_marked > 1_000, "{report:?}");
    assert!(report.restarts > 20 && report.blind > 20 && report.stalls > 20, "{report:?}");
    assert!(report.blackouts > 5 && report.dark_seconds > 200, "{report:?}");
    assert!(report.orphaned_writes > 50 && report.orphaned_writes_taken > 30, "{report:?}");
    assert!(report.fences > 10 && report.fences_abandoned > 0, "{report:?}");
}

/// The oracle would detect it: without the fence, a dead leader's write gives two nodes one pod
/// CIDR.
#[test]
fn without_a_fence_a_range_is_handed_out_twice() {
    let (mut clashes, mut late) = (0, 0);
    for seed in 0..20 {
        let (nodes, zones, seconds) = (120, 4, 2_000);
        let plan =
            SimulationPlan { nodes, zones, seconds, seed, fenced: false, large_above: LARGE_ABOVE };
        let report = run(plan);
        clashes += report.violations.iter().filter(|it| it.contains("given to node")).count();
        late += report.late_ranges_taken;
    }
    assert!(clashes > 0 && late > 0, "{clashes} clashes, {late} late writes taken");
}

#[test]
fn large_zones() {
    let report = runs(600, 3, 2_000, 100..109);
    assert!(report.no_execute_tainted_slowly > 5, "{report:?}");
    assert!(report.ranges > 3_000, "{report:?}");
}

/// Nodes join and leave around the number that makes a zone large.
#[test]
fn zones_at_the_threshold() {
    let report = runs(200, 4, 3_000, 20_000..20_012);
    assert!(
        report.no_execute_tainted_slowly > 5 && report.no_execute_tainted_in_shrunken > 0,
        "{report:?}"
    );
}

/// The oracle would detect it: a controller that treats zones of 50 nodes as large taints some
/// there.
#[test]
fn with_another_threshold_small_zones_are_tainted() {
    let mut violations = 0;
    for seed in 20_000..20_004 {
        let large_above = LARGE_ABOVE - 1;
        let plan = SimulationPlan {
            nodes: 200,
            zones: 4,
            seconds: 3_000,
            seed,
            fenced: true,
            large_above,
        };
        let report = run(plan);
        violations += report.violations.iter().filter(|it| it.contains("in a small zone")).count();
    }
    assert!(violations > 0);
}

#[test]
fn one_zone() {
    let report = runs(40, 1, 3_000, 200..206);
    assert!(report.outages_detected > 50, "{report:?}");
}
