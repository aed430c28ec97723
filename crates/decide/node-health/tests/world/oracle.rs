//! The oracle: invariants checked against the true state.
//!
//! Counts how often each rule was exercised, so that a run in which nothing happened does not pass
//! for a proof.

use std::collections::BTreeMap;

use node_health::cidr::NodeCidrError;

use super::cluster::{SimulatedCluster, has_lost_taint};
use super::store::{Author, WATCH_DELAY, WRITE_DELAY};

/// A view older than this must cause no action.
const GAP: i64 = 10;
/// Seconds by which actions may lag behind the truth: watch and write, the gap that still counts as
/// observed, and steps of one second.
pub const STALENESS: i64 = WATCH_DELAY + WRITE_DELAY + GAP + 2;
const GRACE: i64 = 50;
const STARTUP: i64 = 60;
/// After a disturbance nodes get this long to report.
const SETTLING: i64 = 20;
/// In a zone that becomes mostly not ready with at most this many nodes, none is tainted.
pub const LARGE_ABOVE: usize = 50;

/// How long a node that cannot be written delays all pod CIDRs, and the pause between two retries.
const FENCED: i64 = 120 + 15;

/// What happened, and what was checked.
#[derive(Clone, Debug, Default)]
pub struct SimulationReport {
    pub violations: Vec<String>,
    pub outages_detected: u64,
    pub longest_detection: i64,
    pub no_execute_tainted: u64,
    pub no_execute_tainted_slowly: u64,
    /// In zones that were large when they became mostly not ready, and have shrunk since.
    pub no_execute_tainted_in_shrunken: u64,
    pub pods_deleted: u64,
    pub pods_marked: u64,
    pub longest_unmarked: i64,
    pub ranges: u64,
    pub restarts: u64,
    pub blind: u64,
    pub stalls: u64,
    pub api_outages: u64,
    pub blackouts: u64,
    pub dark_seconds: u64,
    /// How long a node had reported Ready when a pod was evicted from it: by a live controller, and
    /// by a dead one's write.
    pub stalest_eviction: i64,
    pub stalest_of_the_dead: i64,
    pub longest_unheard: i64,
    pub renewals: u64,
    pub starts: u64,
    /// Writes of dead controllers that arrived, and those of them that were taken.
    pub orphaned_writes: u64,
    pub orphaned_writes_taken: u64,
    /// Of those that bring a pod CIDR: arrived, accepted, and refused when another node had that
    /// CIDR by then.
    pub late_ranges: u64,
    pub late_ranges_taken: u64,
    pub clashes_averted: u64,
    /// Starts at which a node had no pod CIDR, nodes changed to fence them, and those that could
    /// not be.
    pub fences: u64,
    pub touches: u64,
    pub fences_abandoned: u64,
    /// The longest time a node had no pod CIDR while nothing disturbed the controller.
    pub longest_without_range: i64,
    /// Nodes that a dead controller's write marked Unknown although they had renewed since.
    pub marked_unknown_by_dead_controllers: u64,
}

impl SimulationReport {
    /// Adds another report.
    pub fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.outages_detected += other.outages_detected;
        self.longest_detection = self.longest_detection.max(other.longest_detection);
        self.no_execute_tainted += other.no_execute_tainted;
        self.no_execute_tainted_slowly += other.no_execute_tainted_slowly;
        self.no_execute_tainted_in_shrunken += other.no_execute_tainted_in_shrunken;
        self.pods_deleted += other.pods_deleted;
        self.pods_marked += other.pods_marked;
        self.longest_unmarked = self.longest_unmarked.max(other.longest_unmarked);
        self.ranges += other.ranges;
        self.restarts += other.restarts;
        self.blind += other.blind;
        self.stalls += other.stalls;
        self.api_outages += other.api_outages;
        self.blackouts += other.blackouts;
        self.dark_seconds += other.dark_seconds;
        self.stalest_eviction = self.stalest_eviction.max(other.stalest_eviction);
        self.stalest_of_the_dead = self.stalest_of_the_dead.max(other.stalest_of_the_dead);
        self.longest_unheard = self.longest_unheard.max(other.longest_unheard);
        self.renewals += other.renewals;
        self.starts += other.starts;
        self.orphaned_writes += other.orphaned_writes;
        self.orphaned_writes_taken += other.orphaned_writes_taken;
        self.late_ranges += other.late_ranges;
        self.late_ranges_taken += other.late_ranges_taken;
        self.clashes_averted += other.clashes_averted;
        self.fences += other.fences;
        self.touches += other.touches;
        self.fences_abandoned += other.fences_abandoned;
        self.longest_without_range = self.longest_without_range.max(other.longest_without_range);
        self.marked_unknown_by_dead_controllers += other.marked_unknown_by_dead_controllers;
    }
}

/// The oracle's state.
pub struct Oracle {
    pub report: SimulationReport,
    /// Since when nothing disturbed the controller.
    pub calm_since: i64,
    dark_since: Option<i64>,
    partial_since: Vec<Option<i64>>,
    /// How many nodes a zone had when the live controller evaluated it as mostly not ready.
    partial_from_size: Vec<Option<usize>>,
    /// How many nodes each zone had, at the start and at the end of each second.
    sizes: Vec<Vec<usize>>,
    start: i64,
    last_asked: Vec<Option<i64>>,
    /// When a node of the zone was last tainted, and which.
    last_landed: Vec<Option<(i64, u32)>>,
    /// Since when the zone was mostly not ready, at its last NoExecute request.
    asked_in_partial: Vec<Option<i64>>,
    /// The node that has each pod CIDR, and the process that assigned it.
    owners: BTreeMap<String, (u32, u32)>,
    /// Since when a node has no pod CIDR.
    rangeless_since: BTreeMap<u32, i64>,
    wrongly_tainted_since: BTreeMap<u32, i64>,
    /// Since when a lost node has pods that are still marked ready.
    unmarked_since: BTreeMap<u32, i64>,
    unnoticed: BTreeMap<u32, i64>,
}

/// The nodes of a zone as the controller counted them.
#[derive(Clone, Copy)]
pub struct ZoneCounts {
    pub ready: usize,
    pub not_ready: usize,
}

impl ZoneCounts {
    fn total(self) -> usize {
        self.ready + self.not_ready
    }
}

impl Oracle {
    pub fn new(cluster: &SimulatedCluster) -> Self {
        let (zones, start) = (cluster.zones, cluster.now);
        Self {
            report: SimulationReport::default(),
            calm_since: start,
            dark_since: None,
            partial_since: vec![None; zones],
            partial_from_size: vec![None; zones],
            sizes: vec![cluster.members.clone()],
            start,
            last_asked: vec![None; zones],
            last_landed: vec![None; zones],
            asked_in_partial: vec![None; zones],
            owners: BTreeMap::new(),
            rangeless_since: BTreeMap::new(),
            wrongly_tainted_since: BTreeMap::new(),
            unmarked_since: BTreeMap::new(),
            unnoticed: BTreeMap::new(),
        }
    }

    fn fail(&mut self, cluster: &SimulatedCluster, text: &str) {
        self.report.violations.push(format!("t={}: {text}", cluster.now));
    }

    /// Records a new controller: gaps between its requests start anew, those between applied taints
    /// go on; it evaluates each zone as if it were new.
    pub fn restarted(&mut self) {
        self.report.restarts += 1;
        self.last_asked.fill(None);
        self.partial_from_size.fill(None);
    }

    /// Records that a controller lists everything and starts. Returns its number.
    pub fn started(&mut self) -> u64 {
        self.report.starts += 1;
        self.report.starts
    }

    /// Records that a node is lost since then; it has to be detected.
    pub fn lost(&mut self, id: u32, at: i64) {
        self.unnoticed.insert(id, at);
    }

    /// Checks a zone evaluation with these counts, made on a view complete up to that time. Whether
    /// a zone is large is checked once, when it becomes mostly not ready: nodes that join or leave
    /// later change nothing (as upstream). But that size must have been real.
    pub fn judged(
        &mut self,
        cluster: &SimulatedCluster,
        zone: usize,
        counts: ZoneCounts,
        seen: i64,
    ) {
        let size = counts.total();
        let before = self.partial_from_size[zone];
        self.partial_from_size[zone] =
            mostly_dark(counts.ready, counts.not_ready).then_some(before.unwrap_or(size));
        let first = usize::try_from(seen - self.start).unwrap_or(0).min(self.sizes.len());
        let largest = self.sizes[first..].iter().map(|sizes| sizes[zone]).max();
        if size > cluster.members[zone].max(largest.unwrap_or(0)) {
            self.fail(cluster, &format!("zone {zone}: {size} nodes counted, and it had fewer"));
        }
    }

    /// Checks a request to taint a node. `counts`: as the controller counted.
    pub fn no_execute_requested(
        &mut self,
        cluster: &SimulatedCluster,
        id: u32,
        counts: ZoneCounts,
    ) {
        let (now, zone) = (cluster.now, cluster.node(id).zone);
        if self.dark_since.is_some_and(|since| now - since > STALENESS) {
            self.fail(cluster, &format!("node {id} given up in the dark"));
        }
        let long_partial = self.partial_since[zone].filter(|since| now - since > STALENESS);
        let seen_partial = mostly_dark(counts.ready, counts.not_ready);
        self.asked_in_partial[zone] = long_partial.filter(|_| seen_partial);
        let last = self.last_asked[zone].replace(now);
        let mut shortest = 10;
        let from_size = self.partial_from_size[zone].unwrap_or(counts.total());
        if seen_partial && from_size <= LARGE_ABOVE {
            let text = format!("node {id} given up in a small zone that is mostly dark");
            self.fail(cluster, &text);
        } else if seen_partial {
            let shrunken = cluster.members[zone] <= LARGE_ABOVE;
            self.report.no_execute_tainted_in_shrunken += u64::from(shrunken);
            let settled = long_partial.map(|since| since + STALENESS);
            if last.zip(settled).is_some_and(|(last, settled)| last > settled) {
                shortest = 100;
                self.report.no_execute_tainted_slowly += 1;
            }
        }
        if last.is_some_and(|last| now - last < shortest) {
            self.fail(
                cluster,
                &format!("zone {zone}: turns at {last:?} and {now}, {shortest} s apart at least"),
            );
        }
    }

    /// Checks that a node may be marked Unknown. When the write left, either its grace period was
    /// over, or the last renewal was so fresh that the view, which may be as old as the gap, could
    /// miss it. Leases are separate objects, so no resource version guards this; the node can
    /// correct it with its next update.
    pub fn marked_unknown(&mut self, cluster: &SimulatedCluster, id: u32, author: Author) {
        let Some(renewed) = cluster.node(id).renewed_at else { return };
        let silence = author.sent - renewed;
        if (GAP + 1..GRACE).contains(&silence) {
            self.fail(cluster, &format!("node {id} called lost after {silence} s of silence"));
        }
        self.report.marked_unknown_by_dead_controllers += u64::from(author.dead && silence < 0);
    }

    /// Checks a node's NoExecute taint. The write carries the resource version it was decided on,
    /// and a node's status update makes a new one: so none may succeed even one second after the
    /// node itself reported Ready, however late the write.
    pub fn no_execute_tainted(
        &mut self,
        cluster: &SimulatedCluster,
        id: u32,
        swap: bool,
        author: Author,
    ) {
        self.evicted(cluster, id, author);
        if let Some(since) = cluster.node(id).reported_since {
            let text = format!("node {id} tainted although it said at {since} that it is well");
            self.fail(cluster, &text);
        }
        if swap {
            return;
        }
        self.report.no_execute_tainted += 1;
        // Its token was spent when it was sent, by the controller of that time.
        if author.dead {
            return;
        }
        let zone = cluster.node(id).zone;
        let last = self.last_landed[zone].replace((cluster.now, id));
        let Some((last, last_node)) = last else { return };
        // A restart is no excuse while the last tainted node still has its taint, and so can be
        // seen.
        let visible = last_node != id
            && cluster.node(last_node).exists
            && has_lost_taint(&cluster.node(last_node).facts);
        let partial = self.asked_in_partial[zone].is_some_and(|since| last > since + STALENESS);
        // The write's delay on either side.
        let shortest = if visible && partial { 100 - WRITE_DELAY } else { 10 - WRITE_DELAY };
        if cluster.now - last < shortest {
            self.fail(cluster, &format!("zone {zone}: two nodes given up at {last} and now"));
        }
    }

    /// Checks a pod's deletion by a controller with a complete view up to that time. No resource
    /// version guards a deletion against its node's status (two objects), so a status that the
    /// watch had not delivered can be missed: for the watch's delay plus the deletion's. The shell,
    /// which reads the node again before it deletes, shortens the first. A dead controller's
    /// deletion can be later, but was decided by the same rule.
    pub fn deleted(
        &mut self,
        cluster: &SimulatedCluster,
        id: u32,
        seen_through: i64,
        author: Author,
    ) {
        self.report.pods_deleted += 1;
        self.evicted(cluster, id, author);
        if let Some(since) = cluster.node(id).reported_since {
            let late = cluster.now - since;
            if since <= seen_through || (!author.dead && late > WATCH_DELAY + WRITE_DELAY) {
                let text = format!(
                    "node {id} lost a pod although it said {late} s ago that it is \
                    well, and everything through {seen_through} was seen"
                );
                self.fail(cluster, &text);
            }
        }
        if self.dark_since.is_some_and(|since| author.sent - since > STALENESS) {
            self.fail(cluster, &format!("node {id} lost a pod in the dark"));
        }
    }

    fn evicted(&mut self, cluster: &SimulatedCluster, id: u32, author: Author) {
        let node = cluster.node(id);
        let since = |instant: Option<i64>| instant.map_or(0, |since| cluster.now - since);
        let (reported, report) = (since(node.reported_since), &mut self.report);
        if author.dead {
            report.stalest_of_the_dead = report.stalest_of_the_dead.max(reported);
        } else {
            report.stalest_eviction = report.stalest_eviction.max(reported);
            report.longest_unheard = report.longest_unheard.max(since(node.well_since));
        }
    }

    /// Checks a node's new pod CIDRs: two nodes never have the same one, however late the write.
    pub fn ranged(&mut self, cluster: &SimulatedCluster, id: u32, author: Author) {
        for range in cluster.node(id).ranges.clone() {
            self.report.ranges += 1;
            if let Some((owner, by)) = self.owners.insert(range.clone(), (id, author.instance)) {
                let late = if author.dead { ", by what a dead one had sent" } else { "" };
                let text = format!(
                    "range {range} of node {owner} (by {by}) given to node {id} (by {}){late}",
                    author.instance
                );
                self.fail(cluster, &text);
            }
        }
    }

    /// Records that a dead controller's pod CIDR write arrives.
    pub fn late_range(&mut self, id: u32, ranges: &[String], taken: bool) {
        let anothers = |range| self.owners.get(range).is_some_and(|(owner, _)| *owner != id);
        self.report.late_ranges += 1;
        self.report.late_ranges_taken += u64::from(taken);
        self.report.clashes_averted += u64::from(!taken && ranges.iter().any(anothers));
    }

    /// Checks the problems that the controller reports: a node's pod CIDRs are never wrong.
    pub fn check_reported_ranges(&mut self, cluster: &SimulatedCluster, problem: &NodeCidrError) {
        self.fail(cluster, &format!("told of ranges: {problem}"));
    }

    /// A node is gone.
    pub fn gone(&mut self, cluster: &SimulatedCluster, id: u32) {
        for range in &cluster.node(id).ranges {
            if self.owners.get(range).is_some_and(|(owner, _)| *owner == id) {
                self.owners.remove(range);
            }
        }
        self.unnoticed.remove(&id);
        self.wrongly_tainted_since.remove(&id);
        self.unmarked_since.remove(&id);
    }

    /// Runs the checks at the end of each second.
    pub fn second(&mut self, cluster: &SimulatedCluster) {
        let now = cluster.now;
        let dark = cluster.ready.iter().all(|ready| *ready == 0);
        self.dark_since = dark.then_some(self.dark_since.unwrap_or(now));
        self.report.dark_seconds += u64::from(dark);
        self.sizes.push(cluster.members.clone());
        for zone in 0..cluster.zones {
            let (ready, size) = (cluster.ready[zone], cluster.members[zone]);
            let partial = mostly_dark(ready, size - ready);
            self.partial_since[zone] = partial.then_some(self.partial_since[zone].unwrap_or(now));
        }
        self.check_detection(cluster);
        if now % 10 == 0 {
            self.check_ranges(cluster);
            self.check_wrong_taints(cluster);
            self.check_marks(cluster);
        }
    }

    /// Every outage is detected within its bound.
    fn check_detection(&mut self, cluster: &SimulatedCluster) {
        let now = cluster.now;
        let mut late = Vec::new();
        let (calm, report) = (self.calm_since, &mut self.report);
        self.unnoticed.retain(|id, lost_at| {
            let node = cluster.node(*id);
            if !node.exists || node.lost_since.is_none() {
                return false;
            }
            let conditions = &node.facts.conditions;
            let posted = conditions.get(node_health::ConditionKind::Ready);
            if posted.is_some_and(|ready| ready.status == node_health::ConditionState::Unknown) {
                report.outages_detected += 1;
                if *lost_at >= calm + SETTLING {
                    report.longest_detection = report.longest_detection.max(now - *lost_at);
                }
                return false;
            }
            let grace = if posted.is_some() { GRACE } else { STARTUP };
            if now - (*lost_at).max(calm + SETTLING) > grace + STALENESS {
                late.push(*id);
                return false;
            }
            true
        });
        for id in late {
            self.fail(cluster, &format!("node {id} is lost and nobody noticed"));
        }
    }

    /// No node waits for a pod CIDR longer than the fence may delay it.
    fn check_ranges(&mut self, cluster: &SimulatedCluster) {
        let now = cluster.now;
        for (id, node) in (0..).zip(&cluster.nodes) {
            if !node.exists || !node.ranges.is_empty() {
                self.rangeless_since.remove(&id);
                continue;
            }
            let since = *self.rangeless_since.entry(id).or_insert(now);
            let waits = now - since.max(self.calm_since);
            self.report.longest_without_range = self.report.longest_without_range.max(waits);
            if waits > FENCED + 2 * STALENESS {
                self.fail(cluster, &format!("node {id} has no range since {since}"));
                self.rangeless_since.insert(id, now);
            }
        }
    }

    /// No pod of a node that became Unknown stays marked ready.
    fn check_marks(&mut self, cluster: &SimulatedCluster) {
        let now = cluster.now;
        for (id, node) in (0..).zip(&cluster.nodes) {
            let claims = node.pods.iter().zip(node.pods_ready).any(|(pod, it)| pod.is_some() && it);
            if !node.exists || !node.fell || !claims {
                self.unmarked_since.remove(&id);
                continue;
            }
            let since = *self.unmarked_since.entry(id).or_insert(now);
            let unmarked = now - since.max(self.calm_since);
            self.report.longest_unmarked = self.report.longest_unmarked.max(unmarked);
            if unmarked > STALENESS {
                self.fail(cluster, &format!("node {id} is lost, and its pods are still ready"));
                self.unmarked_since.insert(id, now);
            }
        }
    }

    /// No healthy node keeps a NoExecute taint.
    fn check_wrong_taints(&mut self, cluster: &SimulatedCluster) {
        let now = cluster.now;
        for (id, node) in (0..).zip(&cluster.nodes) {
            let wrongly_tainted =
                node.exists && node.facts.conditions.is_ready() && has_lost_taint(&node.facts);
            if !wrongly_tainted {
                self.wrongly_tainted_since.remove(&id);
                continue;
            }
            let since = *self.wrongly_tainted_since.entry(id).or_insert(now);
            if now - since.max(self.calm_since) > STALENESS {
                self.fail(cluster, &format!("node {id} is ready and still given up"));
                self.wrongly_tainted_since.insert(id, now);
            }
        }
    }
}

/// The 55 percent rule, in integers.
fn mostly_dark(ready: usize, not_ready: usize) -> bool {
    ready > 0 && not_ready > 2 && not_ready * 100 >= 55 * (ready + not_ready)
}
