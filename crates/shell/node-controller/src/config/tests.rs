//! Valid and invalid configurations.

use pod_model::parse_cidr;

use super::*;

fn range(text: &str, node_mask: u8) -> ClusterRange {
    ClusterRange { range: parse_cidr(text).expect("a range"), node_mask }
}

fn with_ranges(cluster: Vec<ClusterRange>) -> ControllerConfig {
    let ranges = Some(RangesConfig { cluster, service: Vec::new() });
    ControllerConfig { ranges, ..ControllerConfig::default() }
}

#[test]
fn the_defaults_are_upstreams() {
    let checked = validate(ControllerConfig::default()).expect("sound");
    assert_eq!(checked.settings, NodeLifecycleSettings::default());
    assert!(checked.pools.is_empty() && checked.leader.is_none());
}

#[test]
fn invalid_settings_are_errors_that_name_the_field() {
    let leader = |change: fn(&mut LeaderConfig)| {
        let mut leader = LeaderConfig::new("me");
        change(&mut leader);
        ControllerConfig { leader: Some(leader), ..ControllerConfig::default() }
    };
    let health = |change: fn(&mut HealthConfig)| {
        let mut config = ControllerConfig::default();
        change(&mut config.health);
        config
    };
    let rows = [
        (leader(|it| it.identity.clear()), "our identity must not be empty"),
        (leader(|it| it.renew_deadline = it.lease_duration), "must be greater than renew deadline"),
        (health(|it| it.monitor_grace = Duration::ZERO), "node monitor grace period is 0ns"),
        (health(|it| it.unhealthy_zone_share = 1.5), "unhealthy zone threshold is 1.5"),
        (health(|it| it.eviction_rate = f64::NAN), "node eviction rate is NaN"),
        (health(|it| it.secondary_eviction_rate = -1.0), "secondary node eviction rate is -1"),
        (with_ranges(Vec::new()), "there are 0"),
        (with_ranges(vec![range("10.0.0.0/8", 24), range("10.0.0.0/8", 24)]), "there are 2"),
        (with_ranges(vec![range("10.0.0.0/24", 16)]), "smaller than the range's own"),
    ];
    for (config, expected) in rows {
        let error = validate(config).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[test]
fn two_families_make_two_pools_and_a_short_grace_settles_sooner() {
    let both = vec![range("10.0.0.0/16", 24), range("fd00::/56", 64)];
    let mut config = with_ranges(both);
    config.health.monitor_grace = Duration::from_secs(8);
    config.health.monitor_period = Duration::from_secs(1);
    let checked = validate(config).expect("sound");
    assert_eq!(checked.pools.len(), 2);
    assert_eq!(checked.settings.settling, Duration::from_secs(4));
    assert_eq!(checked.settings.largest_gap, Duration::from_secs(2));
}

#[test]
fn an_absence_within_the_gap_leaves_every_node_half_of_its_grace() {
    let rows = [(5, 50, 10), (1, 50, 2), (30, 50, 25), (3_600, 50, 25), (5, 8, 4), (1, 2, 1)];
    for (period, grace, gap) in rows {
        let mut config = ControllerConfig::default();
        config.health.monitor_period = Duration::from_secs(period);
        config.health.monitor_grace = Duration::from_secs(grace);
        let checked = validate(config).expect("sound");
        let expected = Duration::from_secs(gap);
        assert_eq!(checked.settings.largest_gap, expected, "{period} s, {grace} s");
    }
}
