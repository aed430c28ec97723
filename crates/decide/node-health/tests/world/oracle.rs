//! The omniscient observer: what may never happen, checked against the truth.
//!
//! Counts how often each rule was really put to the test, so that a run in which nothing happened
//! does not pass for a proof.

use std::collections::BTreeMap;

use node_health::cidr::Problem;

use super::cluster::{Cluster, wears_lost_taint};
use super::store::{Author, LAG, WAY};

/// A view that is older than this is not acted upon.
const GAP: i64 = 10;
/// Seconds by which what is done may lag behind the truth: watch and write, the gap that counts as
/// looking, and steps of one second.
pub const STALENESS: i64 = LAG + WAY + GAP + 2;
const GRACE: i64 = 50;
const STARTUP: i64 = 60;
/// After a disturbance everybody may speak first.
const SETTLING: i64 = 20;
/// A zone that becomes mostly dark with at most so many nodes gives nobody up.
pub const LARGE_ABOVE: usize = 50;

/// For how long a node that cannot be written to holds up all ranges, and the pause between two tries.
const FENCED: i64 = 120 + 15;

/// What happened, and what was checked.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub violations: Vec<String>,
    pub outages_noticed: u64,
    pub longest_notice: i64,
    pub given_up: u64,
    pub given_up_slowly: u64,
    /// In zones that were large when they became mostly dark, and have shrunk since.
    pub given_up_in_shrunken: u64,
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
    /// How long a node had said that it is well when it was evicted from: by a controller that
    /// lived, and by what a dead one had sent.
    pub stalest_eviction: i64,
    pub stalest_of_the_dead: i64,
    pub longest_unheard: i64,
    pub renewals: u64,
    pub starts: u64,
    /// Writes of dead controllers that arrived, and those of them that were taken.
    pub strays: u64,
    pub strays_taken: u64,
    /// Of those that bring a range: how many arrived, how many were taken, and how many were refused
    /// whose range another node had by then.
    pub late_ranges: u64,
    pub late_ranges_taken: u64,
    pub clashes_averted: u64,
    /// Starts at which somebody had no range, nodes changed to fence them off, and those that could
    /// not be.
    pub fences: u64,
    pub touches: u64,
    pub fences_given_up: u64,
    /// For how long somebody was without a range while nothing disturbed the controller.
    pub longest_without_range: i64,
    /// Nodes that a dead controller's write called lost although they had been heard since.
    pub called_lost_by_the_dead: u64,
}

impl Report {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.outages_noticed += other.outages_noticed;
        self.longest_notice = self.longest_notice.max(other.longest_notice);
        self.given_up += other.given_up;
        self.given_up_slowly += other.given_up_slowly;
        self.given_up_in_shrunken += other.given_up_in_shrunken;
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
        self.strays += other.strays;
        self.strays_taken += other.strays_taken;
        self.late_ranges += other.late_ranges;
        self.late_ranges_taken += other.late_ranges_taken;
        self.clashes_averted += other.clashes_averted;
        self.fences += other.fences;
        self.touches += other.touches;
        self.fences_given_up += other.fences_given_up;
        self.longest_without_range = self.longest_without_range.max(other.longest_without_range);
        self.called_lost_by_the_dead += other.called_lost_by_the_dead;
    }
}

/// What the observer remembers.
pub struct Oracle {
    pub report: Report,
    /// Since when nothing disturbed the controller.
    pub calm_since: i64,
    dark_since: Option<i64>,
    partial_since: Vec<Option<i64>>,
    /// How many nodes a zone had when the controller that lives found it mostly dark.
    partial_from_size: Vec<Option<usize>>,
    /// How many nodes each zone had, at the start and at the end of each second.
    sizes: Vec<Vec<usize>>,
    start: i64,
    last_asked: Vec<Option<i64>>,
    /// When a node of the zone was last given up, and which.
    last_landed: Vec<Option<(i64, u32)>>,
    /// Since when the zone was mostly dark, when its last node was asked to be given up.
    asked_in_partial: Vec<Option<i64>>,
    /// Who has a range, and which process gave it.
    owners: BTreeMap<String, (u32, u32)>,
    /// Since when a node is without a range.
    rangeless_since: BTreeMap<u32, i64>,
    stained_since: BTreeMap<u32, i64>,
    /// Since when a lost node has pods that claim to be ready.
    unmarked_since: BTreeMap<u32, i64>,
    unnoticed: BTreeMap<u32, i64>,
}

impl Oracle {
    pub fn new(cluster: &Cluster) -> Self {
        let (zones, start) = (cluster.zones, cluster.now);
        Self {
            report: Report::default(),
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
            stained_since: BTreeMap::new(),
            unmarked_since: BTreeMap::new(),
            unnoticed: BTreeMap::new(),
        }
    }

    fn fail(&mut self, cluster: &Cluster, text: &str) {
        self.report.violations.push(format!("t={}: {text}", cluster.now));
    }

    /// A new controller: gaps between its turns start anew, landed ones go on counting; it judges each
    /// zone as if it were new.
    pub fn restarted(&mut self) {
        self.report.restarts += 1;
        self.last_asked.fill(None);
        self.partial_from_size.fill(None);
    }

    /// A controller lists everything and begins. Its number.
    pub fn started(&mut self) -> u64 {
        self.report.starts += 1;
        self.report.starts
    }

    /// A node is lost since then; it has to be noticed.
    pub fn lost(&mut self, id: u32, at: i64) {
        self.unnoticed.insert(id, at);
    }

    /// The controller judged a zone by these counts, ready and not, having seen everything through that
    /// moment. Whether a zone is large is asked once, when it becomes mostly dark: nodes that come and
    /// go meanwhile change nothing (as upstream). But as large as that it must have been in truth.
    pub fn judged(&mut self, cluster: &Cluster, zone: usize, counts: (usize, usize), seen: i64) {
        let size = counts.0 + counts.1;
        let before = self.partial_from_size[zone];
        self.partial_from_size[zone] =
            mostly_dark(counts.0, counts.1).then_some(before.unwrap_or(size));
        let first = usize::try_from(seen - self.start).unwrap_or(0).min(self.sizes.len());
        let largest = self.sizes[first..].iter().map(|sizes| sizes[zone]).max();
        if size > cluster.members[zone].max(largest.unwrap_or(0)) {
            self.fail(cluster, &format!("zone {zone}: {size} nodes counted, and it had fewer"));
        }
    }

    /// The controller asked for a node to be given up. `counts`: ready and not, as it counted.
    pub fn asked_to_give_up(&mut self, cluster: &Cluster, id: u32, counts: (usize, usize)) {
        let (now, zone) = (cluster.now, cluster.node(id).zone);
        if self.dark_since.is_some_and(|since| now - since > STALENESS) {
            self.fail(cluster, &format!("node {id} given up in the dark"));
        }
        let long_partial = self.partial_since[zone].filter(|since| now - since > STALENESS);
        let seen_partial = mostly_dark(counts.0, counts.1);
        self.asked_in_partial[zone] = long_partial.filter(|_| seen_partial);
        let last = self.last_asked[zone].replace(now);
        let mut shortest = 10;
        let from_size = self.partial_from_size[zone].unwrap_or(counts.0 + counts.1);
        if seen_partial && from_size <= LARGE_ABOVE {
            let text = format!("node {id} given up in a small zone that is mostly dark");
            self.fail(cluster, &text);
        } else if seen_partial {
            let shrunken = cluster.members[zone] <= LARGE_ABOVE;
            self.report.given_up_in_shrunken += u64::from(shrunken);
            let settled = long_partial.map(|since| since + STALENESS);
            if last.zip(settled).is_some_and(|(last, settled)| last > settled) {
                shortest = 100;
                self.report.given_up_slowly += 1;
            }
        }
        if last.is_some_and(|last| now - last < shortest) {
            self.fail(
                cluster,
                &format!("zone {zone}: turns at {last:?} and {now}, {shortest} s apart at least"),
            );
        }
    }

    /// A node is called Unknown. Whoever did so must have had its silence before its eyes: when the
    /// write left, either the grace was over, or the last renewal was so fresh that the view, which
    /// may be as old as the gap, could miss it. Leases are objects of their own, so no version guards
    /// this; the node has its next turn to say that it is well.
    pub fn called_lost(&mut self, cluster: &Cluster, id: u32, author: Author) {
        let Some(renewed) = cluster.node(id).renewed_at else { return };
        let silence = author.sent - renewed;
        if (GAP + 1..GRACE).contains(&silence) {
            self.fail(cluster, &format!("node {id} called lost after {silence} s of silence"));
        }
        self.report.called_lost_by_the_dead += u64::from(author.dead && silence < 0);
    }

    /// A node's taint that gives it up is there. The write carries the version that it was decided
    /// on, and a node's report makes a new one: so not one second after the API server had it from
    /// the node itself that it is well, whoever wrote and however late.
    pub fn given_up(&mut self, cluster: &Cluster, id: u32, swap: bool, author: Author) {
        self.evicted(cluster, id, author);
        if let Some(since) = cluster.node(id).reported_since {
            let text = format!("node {id} tainted although it said at {since} that it is well");
            self.fail(cluster, &text);
        }
        if swap {
            return;
        }
        self.report.given_up += 1;
        // Its turn was taken when it was sent, and by whoever was the controller then.
        if author.dead {
            return;
        }
        let zone = cluster.node(id).zone;
        let last = self.last_landed[zone].replace((cluster.now, id));
        let Some((last, who)) = last else { return };
        // A restart is no excuse while the last one still wears its taint, and so can be seen.
        let visible =
            who != id && cluster.node(who).exists && wears_lost_taint(&cluster.node(who).facts);
        let partial = self.asked_in_partial[zone].is_some_and(|since| last > since + STALENESS);
        // The way of a write on either side.
        let shortest = if visible && partial { 100 - WAY } else { 10 - WAY };
        if cluster.now - last < shortest {
            self.fail(cluster, &format!("zone {zone}: two nodes given up at {last} and now"));
        }
    }

    /// A pod was deleted, by a controller that had seen everything through that moment. No version
    /// guards a deletion against its node's report (they are two objects), so one that the watch had
    /// not shown yet can be missed: for as long as the watch lags and the deletion is on its way. The
    /// shell, which reads the node once more before it deletes, makes the first of the two shorter
    /// still. A dead controller's deletion is as late as it is, but was decided by the same rule.
    pub fn deleted(&mut self, cluster: &Cluster, id: u32, seen_through: i64, author: Author) {
        self.report.pods_deleted += 1;
        self.evicted(cluster, id, author);
        if let Some(since) = cluster.node(id).reported_since {
            let late = cluster.now - since;
            if since <= seen_through || (!author.dead && late > LAG + WAY) {
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

    fn evicted(&mut self, cluster: &Cluster, id: u32, author: Author) {
        let node = cluster.node(id);
        let since = |moment: Option<i64>| moment.map_or(0, |since| cluster.now - since);
        let (reported, report) = (since(node.reported_since), &mut self.report);
        if author.dead {
            report.stalest_of_the_dead = report.stalest_of_the_dead.max(reported);
        } else {
            report.stalest_eviction = report.stalest_eviction.max(reported);
            report.longest_unheard = report.longest_unheard.max(since(node.well_since));
        }
    }

    /// A node has ranges now. No two nodes ever have one, whoever gave it and however late.
    pub fn ranged(&mut self, cluster: &Cluster, id: u32, author: Author) {
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

    /// What a dead controller had sent to give a node a range arrives.
    pub fn late_range(&mut self, id: u32, ranges: &[String], taken: bool) {
        let anothers = |range| self.owners.get(range).is_some_and(|(owner, _)| *owner != id);
        self.report.late_ranges += 1;
        self.report.late_ranges_taken += u64::from(taken);
        self.report.clashes_averted += u64::from(!taken && ranges.iter().any(anothers));
    }

    /// What the controller tells of a node's ranges: nothing is ever wrong with them.
    pub fn told(&mut self, cluster: &Cluster, problem: &Problem) {
        self.fail(cluster, &format!("told of ranges: {problem}"));
    }

    /// A node is gone.
    pub fn gone(&mut self, cluster: &Cluster, id: u32) {
        for range in &cluster.node(id).ranges {
            if self.owners.get(range).is_some_and(|(owner, _)| *owner == id) {
                self.owners.remove(range);
            }
        }
        self.unnoticed.remove(&id);
        self.stained_since.remove(&id);
        self.unmarked_since.remove(&id);
    }

    /// At the end of each second.
    pub fn second(&mut self, cluster: &Cluster) {
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
        self.check_notice(cluster);
        if now % 10 == 0 {
            self.check_ranges(cluster);
            self.check_stains(cluster);
            self.check_marks(cluster);
        }
    }

    /// Every outage is noticed within its bound.
    fn check_notice(&mut self, cluster: &Cluster) {
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
            if posted.is_some_and(|ready| ready.status == node_health::Truth::Unknown) {
                report.outages_noticed += 1;
                if *lost_at >= calm + SETTLING {
                    report.longest_notice = report.longest_notice.max(now - *lost_at);
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

    /// Nobody waits for a range longer than the fence may hold it up.
    fn check_ranges(&mut self, cluster: &Cluster) {
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

    /// No pod of a node that fell silent goes on claiming to be ready.
    fn check_marks(&mut self, cluster: &Cluster) {
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

    /// Nobody who is well stays given up.
    fn check_stains(&mut self, cluster: &Cluster) {
        let now = cluster.now;
        for (id, node) in (0..).zip(&cluster.nodes) {
            let stained =
                node.exists && node.facts.conditions.is_ready() && wears_lost_taint(&node.facts);
            if !stained {
                self.stained_since.remove(&id);
                continue;
            }
            let since = *self.stained_since.entry(id).or_insert(now);
            if now - since.max(self.calm_since) > STALENESS {
                self.fail(cluster, &format!("node {id} is ready and still given up"));
                self.stained_since.insert(id, now);
            }
        }
    }
}

/// The rule of 55 percent, in whole numbers.
fn mostly_dark(ready: usize, not_ready: usize) -> bool {
    ready > 0 && not_ready > 2 && not_ready * 100 >= 55 * (ready + not_ready)
}
