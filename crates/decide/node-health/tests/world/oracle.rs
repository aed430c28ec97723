//! The omniscient observer: what may never happen, checked against the truth.
//!
//! Counts how often each rule was really put to the test, so that a run in which nothing happened
//! does not pass for a proof.

use std::collections::BTreeMap;

use super::cluster::{Cluster, RENEW, wears_lost_taint};

/// Seconds by which the controller's view may lag: watch and write (2 each), the gap that counts as
/// looking (10), and steps of one second.
pub const STALENESS: i64 = 16;
const GRACE: i64 = 50;
const STARTUP: i64 = 60;
/// After a disturbance everybody may speak first.
const SETTLING: i64 = 20;

/// What happened, and what was checked.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub violations: Vec<String>,
    pub outages_noticed: u64,
    pub longest_notice: i64,
    pub given_up: u64,
    pub given_up_slowly: u64,
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
    pub stalest_eviction: i64,
    pub longest_unheard: i64,
    pub renewals: u64,
}

impl Report {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.outages_noticed += other.outages_noticed;
        self.longest_notice = self.longest_notice.max(other.longest_notice);
        self.given_up += other.given_up;
        self.given_up_slowly += other.given_up_slowly;
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
        self.longest_unheard = self.longest_unheard.max(other.longest_unheard);
        self.renewals += other.renewals;
    }
}

/// What the observer remembers.
pub struct Oracle {
    pub report: Report,
    /// Since when nothing disturbed the controller.
    pub calm_since: i64,
    dark_since: Option<i64>,
    partial_since: Vec<Option<i64>>,
    last_asked: Vec<Option<i64>>,
    /// When a node of the zone was last given up, and which.
    last_landed: Vec<Option<(i64, u32)>>,
    /// Since when the zone was mostly dark, when its last node was asked to be given up.
    asked_in_partial: Vec<Option<i64>>,
    owners: BTreeMap<String, u32>,
    stained_since: BTreeMap<u32, i64>,
    /// Since when a lost node has pods that claim to be ready.
    unmarked_since: BTreeMap<u32, i64>,
    unnoticed: BTreeMap<u32, i64>,
}

impl Oracle {
    pub fn new(zones: usize, start: i64) -> Self {
        Self {
            report: Report::default(),
            calm_since: start,
            dark_since: None,
            partial_since: vec![None; zones],
            last_asked: vec![None; zones],
            last_landed: vec![None; zones],
            asked_in_partial: vec![None; zones],
            owners: BTreeMap::new(),
            stained_since: BTreeMap::new(),
            unmarked_since: BTreeMap::new(),
            unnoticed: BTreeMap::new(),
        }
    }

    fn fail(&mut self, cluster: &Cluster, text: &str) {
        self.report.violations.push(format!("t={}: {text}", cluster.now));
    }

    /// A new controller: gaps between its turns start anew, landed ones go on counting.
    pub fn restarted(&mut self) {
        self.report.restarts += 1;
        self.last_asked.fill(None);
    }

    /// A node is lost since then; it has to be noticed.
    pub fn lost(&mut self, id: u32, at: i64) {
        self.unnoticed.insert(id, at);
    }

    /// The controller asked for a node to be given up. `counts`: ready and not, as it counted.
    pub fn asked_to_give_up(&mut self, cluster: &Cluster, id: u32, counts: (usize, usize)) {
        let (now, zone) = (cluster.now, cluster.node(id).zone);
        if self.dark_since.is_some_and(|since| now - since > STALENESS) {
            self.fail(cluster, &format!("node {id} given up in the dark"));
        }
        let size = cluster.members[zone];
        let long_partial = self.partial_since[zone].filter(|since| now - since > STALENESS);
        let seen_partial = mostly_dark(counts.0, counts.1);
        self.asked_in_partial[zone] = long_partial.filter(|_| seen_partial);
        let last = self.last_asked[zone].replace(now);
        let mut shortest = 10;
        if let (Some(since), true) = (long_partial, seen_partial) {
            if size <= 50 {
                self.fail(
                    cluster,
                    &format!("node {id} given up in a small zone that is mostly dark"),
                );
            } else if last.is_some_and(|last| last > since + STALENESS) {
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

    /// A node's taint that gives it up is there.
    pub fn given_up(&mut self, cluster: &Cluster, id: u32, swap: bool) {
        self.evicted(cluster, id, "tainted");
        let zone = cluster.node(id).zone;
        if swap {
            return;
        }
        self.report.given_up += 1;
        let last = self.last_landed[zone].replace((cluster.now, id));
        let Some((last, who)) = last else { return };
        // A restart is no excuse while the last one still wears its taint, and so can be seen.
        let visible =
            who != id && cluster.node(who).exists && wears_lost_taint(&cluster.node(who).facts);
        let partial = self.asked_in_partial[zone].is_some_and(|since| last > since + STALENESS);
        // Two seconds of delay on either side.
        let shortest = if visible && partial { 98 } else { 8 };
        if cluster.now - last < shortest {
            self.fail(cluster, &format!("zone {zone}: two nodes given up at {last} and now"));
        }
    }

    /// A pod was deleted.
    pub fn deleted(&mut self, cluster: &Cluster, id: u32) {
        self.report.pods_deleted += 1;
        self.evicted(cluster, id, "lost a pod");
        if self.dark_since.is_some_and(|since| cluster.now - since > STALENESS) {
            self.fail(cluster, &format!("node {id} lost a pod in the dark"));
        }
    }

    fn evicted(&mut self, cluster: &Cluster, id: u32, what: &str) {
        let node = cluster.node(id);
        let reported = node.reported_since.map_or(0, |since| cluster.now - since);
        // A kubelet that is back needs up to one period to say so. That the API server was down
        // meanwhile is no excuse: then the controller has to wait for what the nodes say.
        let well = node.well_since.map_or(0, |since| cluster.now - since);
        self.report.stalest_eviction = self.report.stalest_eviction.max(reported);
        self.report.longest_unheard = self.report.longest_unheard.max(well);
        if reported > STALENESS {
            self.fail(
                cluster,
                &format!("node {id} {what} although it said {reported} s ago that it is well"),
            );
        }
        if well > STALENESS + i64::try_from(RENEW).unwrap_or(0) {
            self.fail(cluster, &format!("node {id} {what} although well for {well} s"));
        }
    }

    /// A node has ranges now.
    pub fn ranged(&mut self, cluster: &Cluster, id: u32) {
        for range in cluster.node(id).ranges.clone() {
            self.report.ranges += 1;
            if let Some(other) = self.owners.insert(range.clone(), id).filter(|other| *other != id)
            {
                self.fail(cluster, &format!("range {range} of node {other} given to node {id}"));
            }
        }
    }

    /// A node is gone.
    pub fn gone(&mut self, cluster: &Cluster, id: u32) {
        for range in &cluster.node(id).ranges {
            self.owners.remove(range);
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
        for zone in 0..cluster.zones {
            let (ready, size) = (cluster.ready[zone], cluster.members[zone]);
            let partial = mostly_dark(ready, size - ready);
            self.partial_since[zone] = partial.then_some(self.partial_since[zone].unwrap_or(now));
        }
        self.check_notice(cluster);
        if now % 10 == 0 {
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
