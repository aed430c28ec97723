//! The controller's configuration: every setting, as plain values.
//!
//! Rule: the caller has parsed all text; here only inconsistent values are refused. Defaults are
//! upstream's. Reads no file and no flag.

use std::time::Duration;

use node_health::cidr::{Pool, PoolError};
use node_health::health::Grace;
use node_health::leader::{LeaderElectionTimes, LeaderElectionTimesError};
use node_health::lifecycle::NodeLifecycleSettings;
use node_health::zones::{EvictionRate, ZoneSettings};
use pod_model::Cidr;

/// Which controllers run. The two cloud controllers need a cloud as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledControllers {
    /// `node-lifecycle-controller`: heartbeats, conditions, taints, zones.
    pub node_lifecycle: bool,
    /// `taint-eviction-controller`: evicts pods from nodes with NoExecute taints.
    pub taint_eviction: bool,
    /// `node-ipam-controller`: pod CIDRs; runs only with cluster CIDRs.
    pub node_ipam: bool,
    /// `pod-garbage-collector-controller`.
    pub pod_cleanup: bool,
    /// `cloud-node-lifecycle-controller`: nodes deleted or shut down in the cloud.
    pub cloud_node_lifecycle: bool,
    /// `cloud-node-controller`: initializes new nodes from the cloud, and updates addresses.
    pub cloud_node: bool,
}

impl Default for EnabledControllers {
    fn default() -> Self {
        Self {
            node_lifecycle: true,
            taint_eviction: true,
            node_ipam: true,
            pod_cleanup: true,
            cloud_node_lifecycle: true,
            cloud_node: true,
        }
    }
}

/// Grace periods and zones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthConfig {
    /// `--node-monitor-period`: how often the cloud is queried about nodes that are not ready, and
    /// how old the view of the cluster may be.
    pub monitor_period: Duration,
    /// `--node-monitor-grace-period`.
    pub monitor_grace: Duration,
    /// `--node-startup-grace-period`.
    pub startup_grace: Duration,
    /// `--node-eviction-rate`, nodes per second.
    pub eviction_rate: f64,
    /// `--secondary-node-eviction-rate`, nodes per second.
    pub secondary_eviction_rate: f64,
    /// `--large-cluster-size-threshold`.
    pub large_zone_above: usize,
    /// `--unhealthy-zone-threshold`.
    pub unhealthy_zone_share: f32,
    /// How long nodes get to report after the controller or API server came back, before it acts on
    /// silent ones. None: two periods of a kubelet's lease (20 s), or half the grace period if that
    /// is shorter.
    pub settling: Option<Duration>,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            monitor_grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_zone_above: 50,
            unhealthy_zone_share: 0.55,
            settling: None,
        }
    }
}

/// Pod garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCleanupConfig {
    /// `--terminated-pod-gc-threshold`; zero disables that rule.
    pub terminated_threshold: usize,
    pub period: Duration,
    /// How long a node must be missing before its pods are deleted.
    pub quarantine: Duration,
}

impl Default for PodCleanupConfig {
    fn default() -> Self {
        Self {
            terminated_threshold: 12_500,
            period: Duration::from_secs(20),
            quarantine: Duration::from_secs(40),
        }
    }
}

/// One cluster CIDR and its node mask size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRange {
    pub range: Cidr,
    pub node_mask: u8,
}

/// `--allocate-node-cidrs` and related flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangesConfig {
    /// `--cluster-cidr`, in order: one, or two of different families.
    pub cluster: Vec<ClusterRange>,
    /// `--service-cluster-ip-range`, `--secondary-service-cluster-ip-range`.
    pub service: Vec<Cidr>,
}

/// `--leader-elect` and related flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderConfig {
    pub namespace: String,
    pub name: String,
    /// Unique among the instances; for example host name and a random part.
    pub identity: String,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl LeaderConfig {
    pub const NAMESPACE: &str = "kube-system";
    pub const NAME: &str = "keelson-node-controller";

    /// Upstream's times, and this project's lease name.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            namespace: Self::NAMESPACE.to_owned(),
            name: Self::NAME.to_owned(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    pub enabled: EnabledControllers,
    pub health: HealthConfig,
    pub pod_cleanup: PodCleanupConfig,
    /// None: this controller assigns no pod CIDRs.
    pub ranges: Option<RangesConfig>,
    /// None: this is the only instance and acts at once.
    pub leader: Option<LeaderConfig>,
    /// Feature gate `TaintTolerationComparisonOperators`.
    pub toleration_comparisons: bool,
    pub writes: WriteConfig,
    /// `--node-status-update-frequency` of the cloud node controller: how often addresses are
    /// compared.
    pub cloud_update_period: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            enabled: EnabledControllers::default(),
            health: HealthConfig::default(),
            pod_cleanup: PodCleanupConfig::default(),
            ranges: None,
            leader: None,
            toleration_comparisons: false,
            writes: WriteConfig::default(),
            cloud_update_period: Duration::from_secs(300),
        }
    }
}

/// How writes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteConfig {
    /// Timeout of a write.
    pub deadline: Duration,
    /// How many may be in flight at once.
    pub max_in_flight: usize,
    /// How many pending events are written together; then a pause of half a second follows.
    pub events_per_batch: usize,
}

impl Default for WriteConfig {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), max_in_flight: 16, events_per_batch: 10 }
    }
}

/// Inconsistent configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error("leader election: {0}")]
    LeaderTimes(#[from] LeaderElectionTimesError),
    #[error("leader election: {field} must not be empty")]
    LeaderName { field: &'static str },
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("pod ranges need one cluster range, or two of different families; there are {count}")]
    ClusterRanges { count: usize },
    #[error("{field} is {value:?}; expected more than zero")]
    Zero { field: &'static str, value: Duration },
    #[error("{field} is {value}; expected a number between {least} and {most}")]
    OutOfRange { field: &'static str, value: f64, least: f64, most: f64 },
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub(crate) struct ValidatedConfig {
    pub(crate) config: ControllerConfig,
    pub(crate) settings: NodeLifecycleSettings,
    pub(crate) leader: Option<(LeaderConfig, LeaderElectionTimes)>,
    pub(crate) pools: Vec<Pool>,
}

pub(crate) fn validate(config: ControllerConfig) -> Result<ValidatedConfig, ConfigError> {
    let health = config.health;
    for (field, value) in [
        ("the node monitor period", health.monitor_period),
        ("the node monitor grace period", health.monitor_grace),
        ("the node startup grace period", health.startup_grace),
        ("the period of the pod clean-up", config.pod_cleanup.period),
        ("the deadline of writes", config.writes.deadline),
        ("the cloud's update period", config.cloud_update_period),
    ] {
        if value.is_zero() {
            return Err(ConfigError::Zero { field, value });
        }
    }
    let share = f64::from(health.unhealthy_zone_share);
    for (field, value, most) in [
        ("the unhealthy zone threshold", share, 1.0),
        ("the node eviction rate", health.eviction_rate, 1e6),
        ("the secondary node eviction rate", health.secondary_eviction_rate, 1e6),
    ] {
        if !(0.0..=most).contains(&value) {
            return Err(ConfigError::OutOfRange { field, value, least: 0.0, most });
        }
    }
    let leader = config.leader.clone().map(check_leader).transpose()?;
    let pools = match &config.ranges {
        Some(ranges) if config.enabled.node_ipam => check_ranges(ranges)?,
        _ => Vec::new(),
    };
    Ok(ValidatedConfig { settings: settings(&health), leader, pools, config })
}

fn check_leader(leader: LeaderConfig) -> Result<(LeaderConfig, LeaderElectionTimes), ConfigError> {
    for (field, text) in [
        ("the namespace of the lease", &leader.namespace),
        ("the name of the lease", &leader.name),
        ("our identity", &leader.identity),
    ] {
        if text.is_empty() {
            return Err(ConfigError::LeaderName { field });
        }
    }
    let times = LeaderElectionTimes::new(
        leader.lease_duration,
        leader.renew_deadline,
        leader.retry_period,
    )?;
    Ok((leader, times))
}

fn check_ranges(ranges: &RangesConfig) -> Result<Vec<Pool>, ConfigError> {
    let families = |ranges: &[ClusterRange]| {
        ranges.iter().filter(|range| range.range.network.is_ipv4()).count()
    };
    let fits = match ranges.cluster.len() {
        1 => true,
        2 => families(&ranges.cluster) == 1,
        _ => false,
    };
    if !fits {
        return Err(ConfigError::ClusterRanges { count: ranges.cluster.len() });
    }
    let pool = |range: &ClusterRange| Ok(Pool::new(&range.range, range.node_mask)?);
    ranges.cluster.iter().map(pool).collect()
}

/// Two periods of a kubelet's lease.
const SETTLING: Duration = Duration::from_secs(20);

fn settings(health: &HealthConfig) -> NodeLifecycleSettings {
    let settling = health.settling.unwrap_or_else(|| SETTLING.min(health.monitor_grace / 2));
    // The view may be two periods old; whole seconds keep that above the duration of a read. But it
    // stays well within the grace period: after an absence that long every node would be silent at
    // once.
    let largest_gap = health.monitor_period.saturating_mul(2).max(Duration::from_secs(2));
    let largest_gap = largest_gap.min(health.monitor_grace / 2);
    NodeLifecycleSettings {
        grace: Grace { monitor: health.monitor_grace, startup: health.startup_grace },
        zones: ZoneSettings {
            rate: EvictionRate::per_second(health.eviction_rate),
            secondary_rate: EvictionRate::per_second(health.secondary_eviction_rate),
            large_above: health.large_zone_above,
            unhealthy_share: health.unhealthy_zone_share,
        },
        largest_gap,
        settling,
        ..NodeLifecycleSettings::default()
    }
}

#[cfg(test)]
mod tests;
