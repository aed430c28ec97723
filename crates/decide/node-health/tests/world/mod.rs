//! A cluster in virtual time with injected faults, a controller made of this crate's decisions, and
//! an oracle that checks the true state.
//!
//! One run is a pure function of its plan. Faults: outages of nodes, zones and everything, kubelets
//! that report not ready, clocks that jump by years, an API server that goes away, watches that
//! lag, break or hang, writes that are late, refused or unanswered, and a controller that stalls,
//! crashes and restarts while its earlier writes still arrive.
#![allow(unreachable_pub, reason = "a test and an example share this module")]

mod cluster;
mod driver;
mod oracle;
mod rng;
mod store;

use cluster::SimulatedCluster;
use driver::{Driver, FencedPool};
use node_health::lifecycle::NodeLifecycleSettings;
use oracle::Oracle;
pub use oracle::{LARGE_ABOVE, SimulationReport};
use rng::SeededRng;
use store::OrphanedWrites;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct SimulationPlan {
    pub nodes: usize,
    pub zones: usize,
    pub seconds: i64,
    pub seed: u64,
    /// Whether a new controller fences its predecessor's writes; disabled only to show the
    /// consequence.
    pub fenced: bool,
    /// The node count above which the controller treats a zone as large; set to another value than
    /// the oracle's only to show that the oracle notices.
    pub large_above: usize,
}

const START: i64 = 1_000_000;

/// Runs it.
pub fn run(plan: SimulationPlan) -> SimulationReport {
    let mut rng = SeededRng::new(plan.seed);
    let mut cluster = SimulatedCluster::new(plan.nodes, plan.zones, START, &mut rng);
    let mut oracle = Oracle::new(&cluster);
    let pool = driver::pool(plan.nodes);
    let mut settings = NodeLifecycleSettings::default();
    settings.zones.large_above = plan.large_above;
    cluster.watch_events.clear();
    // The first controller has no predecessor.
    let first_pool = FencedPool { pool: pool.clone(), is_fenced: false };
    let first = Driver::start(&cluster, &mut oracle, &mut rng, first_pool, settings);
    let mut driver = Some(first);
    let mut starts_at = START;
    let mut orphaned_writes = OrphanedWrites::default();
    for _ in 0..plan.seconds {
        disturb_nodes(&mut cluster, &mut oracle, &mut rng);
        cluster.recover();
        cluster.second(&mut rng);
        if let Some((dead, successor_at)) =
            disturb_controller(&cluster, &mut driver, &mut oracle, &mut rng)
        {
            starts_at = successor_at;
            orphaned_writes.inherit(dead.die(), successor_at, cluster.now, &mut rng);
        }
        orphaned_writes.second(&mut cluster, &mut oracle);
        match &mut driver {
            Some(controller) => controller.second(&mut cluster, &mut oracle, &mut rng),
            None => {
                cluster.watch_events.clear();
                if cluster.now >= starts_at && cluster.api_is_up() {
                    let ranges = FencedPool { pool: pool.clone(), is_fenced: plan.fenced };
                    let next = Driver::start(&cluster, &mut oracle, &mut rng, ranges, settings);
                    driver = Some(next);
                    oracle.calm_since = cluster.now;
                }
            }
        }
        if !driver.as_ref().is_some_and(|controller| controller.sees(&cluster)) {
            oracle.calm_since = cluster.now;
        }
        oracle.second(&cluster);
    }
    oracle.report
}

fn disturb_nodes(cluster: &mut SimulatedCluster, oracle: &mut Oracle, rng: &mut SeededRng) {
    let now = cluster.now;
    let count = cluster.nodes.len();
    let pick = |rng: &mut SeededRng| u32::try_from(rng.below(count)).expect("few nodes");
    for _ in 0..=count / 5_000 {
        if rng.one_in(4) {
            let id = pick(rng);
            lose(cluster, oracle, id, now + rng.between(5, 900));
        }
        if rng.one_in(6) {
            let id = pick(rng);
            cluster.make_unready(id, now + rng.between(20, 400));
        }
    }
    if rng.one_in(250) {
        let zone = rng.below(cluster.zones);
        let percent = [30, 60, 80, 97, 100][rng.below(5)];
        let until = now + rng.between(30, 700);
        lose_many(cluster, oracle, rng, until, |node, rng| {
            node == zone && rng.below(100) < percent
        });
    }
    if rng.one_in(900) {
        let until = now + rng.between(60, 500);
        cluster.all_lost_until = until;
        lose_many(cluster, oracle, rng, until, |_, _| true);
    }
    if rng.one_in(15) {
        let id = pick(rng);
        if cluster.node(id).exists && cluster.members[cluster.node(id).zone] > 1 {
            oracle.gone(cluster, id);
            cluster.delete(id);
            let zone = rng.below(cluster.zones);
            let starts = if rng.one_in(5) { i64::MAX } else { now + rng.between(1, 40) };
            let joined = cluster.join(zone, starts, rng);
            let cut_off_until = if starts == i64::MAX { starts } else { cluster.all_lost_until };
            if cut_off_until > now {
                lose(cluster, oracle, joined, cut_off_until);
            }
        }
    }
    if rng.one_in(700) && cluster.api_is_up() {
        cluster.api_down_until = now + rng.between(3, 240);
        oracle.report.api_outages += 1;
    }
}

fn lose_many(
    cluster: &mut SimulatedCluster,
    oracle: &mut Oracle,
    rng: &mut SeededRng,
    until: i64,
    hit: impl Fn(usize, &mut SeededRng) -> bool,
) {
    for id in 0..u32::try_from(cluster.nodes.len()).expect("few nodes") {
        if hit(cluster.node(id).zone, rng) {
            lose(cluster, oracle, id, until);
        }
    }
}

fn lose(cluster: &mut SimulatedCluster, oracle: &mut Oracle, id: u32, until: i64) {
    cluster.lose(id, until);
    let node = cluster.node(id);
    if node.exists && node.lost_since == Some(cluster.now) {
        oracle.lost(id, cluster.now);
    }
}

/// Disturbs the controller: stall, crash or nothing. Returns a crashed one's process and restart
/// time.
fn disturb_controller(
    cluster: &SimulatedCluster,
    driver: &mut Option<Driver>,
    oracle: &mut Oracle,
    rng: &mut SeededRng,
) -> Option<(Driver, i64)> {
    let now = cluster.now;
    let controller = driver.as_mut()?;
    if rng.one_in(500) {
        controller.blind_until = now + rng.between(3, 150);
        oracle.report.blind += 1;
    }
    if rng.one_in(500) {
        controller.stalled_until = now + rng.between(3, 150);
        oracle.report.stalls += 1;
    }
    // A crash with a pod CIDR write in flight could assign it twice: so it is made likelier.
    let odds = if controller.hands_out_a_range() { 50 } else { 400 };
    if !rng.one_in(odds) {
        return None;
    }
    oracle.restarted();
    Some((driver.take()?, now + rng.between(5, 90)))
}
