//! Metrics, under upstream's names.
//!
//! Rule: counting never blocks and never fails; a lock is held for one addition. Labels are zones,
//! namespaces and cluster CIDRs, so their number is bounded by the cluster's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::ControllerConfig;
use crate::report::{HealthState, MetricFamily, MetricKind, Sample};

/// A histogram with fixed bounds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    fn observe(&mut self, value: f64) {
        for (bound, count) in self.bounds.iter().zip(&mut self.counts) {
            *count += u64::from(value <= *bound);
        }
        self.sum += value;
        self.count += 1;
    }

    fn samples(&self, labels: &[(&'static str, String)]) -> Vec<Sample> {
        let sample = |suffix, extra: Option<String>, value| {
            let mut labels = labels.to_vec();
            labels.extend(extra.map(|bound| ("le", bound)));
            Sample { suffix, labels, value }
        };
        let mut samples: Vec<Sample> = self
            .bounds
            .iter()
            .zip(&self.counts)
            .map(|(bound, count)| sample("_bucket", Some(bound.to_string()), whole(*count)))
            .collect();
        samples.push(sample("_bucket", Some("+Inf".to_owned()), whole(self.count)));
        samples.push(sample("_sum", None, self.sum));
        samples.push(sample("_count", None, whole(self.count)));
        samples
    }
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating point by format")]
fn whole(count: u64) -> f64 {
    count as f64
}

/// Eight buckets: 1 ms, each four times the previous.
const NODE_BOUNDS: &[f64] = &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384];
const ALL_NODES_BOUNDS: &[f64] = &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84];
const DELETION_BOUNDS: &[f64] =
    &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];
const TRIES_BOUNDS: &[f64] = &[1.0, 5.0, 25.0, 125.0, 625.0];

/// The current state of a zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ZoneGauge {
    pub(crate) zone: String,
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
}

/// The current state of a cluster CIDR.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RangeGauge {
    pub(crate) cluster: String,
    pub(crate) size: u32,
    pub(crate) taken: u32,
}

#[derive(Debug)]
struct CounterValues {
    zones: Vec<ZoneGauge>,
    node_evictions: BTreeMap<String, u64>,
    node_health: Histogram,
    all_nodes_health: Histogram,
    pod_deletions: u64,
    pod_deletion: Histogram,
    cleanups: BTreeMap<(String, &'static str), u64>,
    cleanup_errors: BTreeMap<(String, &'static str), u64>,
    ranges: Vec<RangeGauge>,
    allocations: BTreeMap<String, u64>,
    releases: BTreeMap<String, u64>,
    tries: BTreeMap<String, Histogram>,
    writes: BTreeMap<(&'static str, &'static str), u64>,
    events_dropped: u64,
    known: (usize, usize),
    synced: bool,
}

impl Default for CounterValues {
    fn default() -> Self {
        Self {
            zones: Vec::new(),
            node_evictions: BTreeMap::new(),
            node_health: Histogram::new(NODE_BOUNDS),
            all_nodes_health: Histogram::new(ALL_NODES_BOUNDS),
            pod_deletions: 0,
            pod_deletion: Histogram::new(DELETION_BOUNDS),
            cleanups: BTreeMap::new(),
            cleanup_errors: BTreeMap::new(),
            ranges: Vec::new(),
            allocations: BTreeMap::new(),
            releases: BTreeMap::new(),
            tries: BTreeMap::new(),
            writes: BTreeMap::new(),
            events_dropped: 0,
            known: (0, 0),
            synced: false,
        }
    }
}

/// The counters of one controller. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<Mutex<CounterValues>>);

impl Counters {
    fn lock(&self) -> MutexGuard<'_, CounterValues> {
        // A count is consistent at any time, so a panic elsewhere leaves nothing broken.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each zone starts with a zero count of evicted nodes, as upstream.
    pub(crate) fn zones(&self, zones: Vec<ZoneGauge>) {
        let mut counts = self.lock();
        for zone in &zones {
            if !counts.node_evictions.contains_key(&zone.zone) {
                counts.node_evictions.insert(zone.zone.clone(), 0);
            }
        }
        counts.zones = zones;
    }

    pub(crate) fn ranges(&self, ranges: Vec<RangeGauge>) {
        self.lock().ranges = ranges;
    }

    pub(crate) fn known(&self, nodes: usize, pods: usize) {
        self.lock().known = (nodes, pods);
    }

    /// Whether the first lists are complete.
    pub(crate) fn synced(&self, synced: bool) {
        self.lock().synced = synced;
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.lock().synced
    }

    pub(crate) fn node_evicted(&self, zone: &str) {
        *self.lock().node_evictions.entry(zone.to_owned()).or_default() += 1;
    }

    pub(crate) fn node_looked_at(&self, took: Duration) {
        self.lock().node_health.observe(took.as_secs_f64());
    }

    pub(crate) fn all_nodes_looked_at(&self, took: Duration) {
        self.lock().all_nodes_health.observe(took.as_secs_f64());
    }

    /// A pod was evicted, this long after its deadline.
    pub(crate) fn pod_deleted(&self, late: Duration) {
        let mut counts = self.lock();
        counts.pod_deletions += 1;
        counts.pod_deletion.observe(late.as_secs_f64());
    }

    pub(crate) fn pod_cleared(&self, namespace: &str, why: &'static str, through: bool) {
        let mut counts = self.lock();
        *counts.cleanups.entry((namespace.to_owned(), why)).or_default() += 1;
        if !through {
            *counts.cleanup_errors.entry((namespace.to_owned(), why)).or_default() += 1;
        }
    }

    pub(crate) fn range_allocated(&self, cluster: &str) {
        let mut counts = self.lock();
        *counts.allocations.entry(cluster.to_owned()).or_default() += 1;
        // The bitmap finds the next free block at the first attempt.
        let tries = counts.tries.entry(cluster.to_owned());
        tries.or_insert_with(|| Histogram::new(TRIES_BOUNDS)).observe(1.0);
    }

    pub(crate) fn range_released(&self, cluster: &str) {
        *self.lock().releases.entry(cluster.to_owned()).or_default() += 1;
    }

    pub(crate) fn written(&self, what: &'static str, outcome: &'static str) {
        *self.lock().writes.entry((what, outcome)).or_default() += 1;
    }

    pub(crate) fn event_dropped(&self) {
        self.lock().events_dropped += 1;
    }

    /// One check per controller, as upstream names them.
    pub(crate) fn health(&self, config: &ControllerConfig) -> Vec<HealthState> {
        let enabled = config.enabled;
        let names = [
            (enabled.node_lifecycle, "node-lifecycle-controller"),
            (enabled.taint_eviction, "taint-eviction-controller"),
            (enabled.node_ipam && config.ranges.is_some(), "node-ipam-controller"),
            (enabled.pod_cleanup, "pod-garbage-collector-controller"),
        ];
        let running = names.into_iter().filter(|(on, _)| *on);
        running.map(|(_, name)| HealthState { name: name.to_owned(), problem: None }).collect()
    }

    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let counts = self.lock();
        let mut families = zone_families(&counts);
        families.extend(pod_families(&counts));
        families.extend(range_families(&counts));
        families.extend(own_families(&counts));
        families
    }
}

fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<Sample>,
) -> MetricFamily {
    MetricFamily { name, help, kind, samples }
}

pub(crate) fn line(labels: Vec<(&'static str, String)>, value: f64) -> Sample {
    Sample { suffix: "", labels, value }
}

fn zone_families(counts: &CounterValues) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Gauge, Histogram};
    let per_zone = |value: fn(&ZoneGauge) -> f64| -> Vec<Sample> {
        let sample = |zone: &ZoneGauge| line(vec![("zone", zone.zone.clone())], value(zone));
        counts.zones.iter().map(sample).collect()
    };
    // A zone without nodes counts as healthy.
    let health = |zone: &ZoneGauge| match zone.ready + zone.not_ready {
        0 => 100.0,
        size => whole(100 * zone.ready as u64) / whole(size as u64),
    };
    let evictions = counts.node_evictions.iter();
    vec![
        family(
            "node_collector_zone_health",
            "Share of healthy nodes per zone, in percent.",
            Gauge,
            per_zone(health),
        ),
        family(
            "node_collector_zone_size",
            "Number of registered nodes per zone.",
            Gauge,
            per_zone(|zone| whole((zone.ready + zone.not_ready) as u64)),
        ),
        family(
            "node_collector_unhealthy_nodes_in_zone",
            "Number of nodes that are not ready per zone.",
            Gauge,
            per_zone(|zone| whole(zone.not_ready as u64)),
        ),
        family(
            "node_collector_evictions_total",
            "Number of nodes tainted NoExecute since this controller started.",
            Counter,
            evictions.map(|(zone, n)| line(vec![("zone", zone.clone())], whole(*n))).collect(),
        ),
        family(
            "node_collector_update_node_health_duration_seconds",
            "Time to bring the health of one node up to date.",
            Histogram,
            counts.node_health.samples(&[]),
        ),
        family(
            "node_collector_update_all_nodes_health_duration_seconds",
            "Time to bring the health of all nodes up to date.",
            Histogram,
            counts.all_nodes_health.samples(&[]),
        ),
    ]
}

fn pod_families(counts: &CounterValues) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Histogram};
    let by_reason = |counts: &BTreeMap<(String, &'static str), u64>| -> Vec<Sample> {
        let sample = |((namespace, why), count): (&(String, &'static str), &u64)| {
            let labels = vec![("namespace", namespace.clone()), ("reason", (*why).to_owned())];
            line(labels, whole(*count))
        };
        counts.iter().map(sample).collect()
    };
    vec![
        family(
            "taint_eviction_controller_pod_deletions_total",
            "Number of pods that taints sent away since this controller started.",
            Counter,
            vec![line(Vec::new(), whole(counts.pod_deletions))],
        ),
        family(
            "taint_eviction_controller_pod_deletion_duration_seconds",
            "Time from a pod's eviction deadline to its deletion.",
            Histogram,
            counts.pod_deletion.samples(&[]),
        ),
        family(
            "pod_gc_collector_force_delete_pods_total",
            "Number of pods that the clean-up set out to delete since this controller started.",
            Counter,
            by_reason(&counts.cleanups),
        ),
        family(
            "pod_gc_collector_force_delete_pod_errors_total",
            "Number of deletions by the clean-up that failed since this controller started.",
            Counter,
            by_reason(&counts.cleanup_errors),
        ),
    ]
}

fn range_families(counts: &CounterValues) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Gauge, Histogram};
    let label = |cluster: &str| vec![("clusterCIDR", cluster.to_owned())];
    let per_cluster = |counts: &BTreeMap<String, u64>| -> Vec<Sample> {
        counts.iter().map(|(cluster, count)| line(label(cluster), whole(*count))).collect()
    };
    let per_range = |value: fn(&RangeGauge) -> f64| -> Vec<Sample> {
        counts.ranges.iter().map(|range| line(label(&range.cluster), value(range))).collect()
    };
    vec![
        family(
            "node_ipam_controller_cidrset_cidrs_allocations_total",
            "Number of pod ranges handed out.",
            Counter,
            per_cluster(&counts.allocations),
        ),
        family(
            "node_ipam_controller_cidrset_cidrs_releases_total",
            "Number of pod ranges given back.",
            Counter,
            per_cluster(&counts.releases),
        ),
        family(
            // Upstream's own spelling.
            "node_ipam_controller_cirdset_max_cidrs",
            "Number of pod ranges that there are.",
            Gauge,
            per_range(|range| f64::from(range.size)),
        ),
        family(
            "node_ipam_controller_cidrset_usage_cidrs",
            "Share of pod ranges that are taken.",
            Gauge,
            per_range(|range| f64::from(range.taken) / f64::from(range.size.max(1))),
        ),
        family(
            "node_ipam_controller_cidrset_allocation_tries_per_request",
            "Number of tries until a pod range was found.",
            Histogram,
            counts
                .tries
                .iter()
                .flat_map(|(cluster, tries)| tries.samples(&label(cluster)))
                .collect(),
        ),
    ]
}

fn own_families(counts: &CounterValues) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Gauge};
    let writes = counts.writes.iter().map(|((what, outcome), count)| {
        let labels = vec![("object", (*what).to_owned()), ("outcome", (*outcome).to_owned())];
        line(labels, whole(*count))
    });
    let known = [("nodes", counts.known.0), ("pods", counts.known.1)];
    let known =
        known.map(|(what, count)| line(vec![("object", what.to_owned())], whole(count as u64)));
    vec![
        family(
            "keelson_node_controller_writes_total",
            "Number of writes by object and outcome.",
            Counter,
            writes.collect(),
        ),
        family(
            "keelson_node_controller_known_objects",
            "Number of objects that this controller keeps in memory.",
            Gauge,
            known.to_vec(),
        ),
        family(
            "keelson_node_controller_events_dropped_total",
            "Number of events dropped because the queue was full.",
            Counter,
            vec![line(Vec::new(), whole(counts.events_dropped))],
        ),
    ]
}
