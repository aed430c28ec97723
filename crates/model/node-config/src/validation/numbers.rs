//! Numbers that have a range of their own: ports, rates, counts, bits, percentages.
//!
//! The rule it keeps: a bound is in a table row, and a row names one field. Rules about two fields
//! at once are in the module of their area.

use std::ops::RangeInclusive;

use super::{ValidationFindings, ValidationInput};
use crate::feature_gates::Gate;

const PORTS: RangeInclusive<i32> = 1..=65_535;
const PERCENT: RangeInclusive<i32> = 0..=100;
/// A mark is one bit of the 32 bits of a packet's mark.
const MARK_BITS: RangeInclusive<i32> = 0..=31;
const OOM_SCORE_ADJUSTMENTS: RangeInclusive<i32> = -1000..=1000;
const KERNEL_DEFAULT_QUOTA_PERIOD: i64 = 100_000_000;
const QUOTA_PERIODS: (i64, i64) = (1_000_000, 1_000_000_000);
const SHORTEST_LOG_CHECK: i64 = 3_000_000_000;

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    ranges(input, findings);
    lower_bounds(input, findings);
    periods(input, findings);
}

fn ranges(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    findings.within("port", settings.port, PORTS);
    // Zero disables these two.
    for (field, port) in
        [("readOnlyPort", settings.read_only_port), ("healthzPort", settings.healthz_port)]
    {
        if port != 0 && !PORTS.contains(&port) {
            findings.refuse(field, port, "must be between 1 and 65535, or 0 for no port");
        }
    }
    let high = settings.image_gc_high_threshold_percent;
    let low = settings.image_gc_low_threshold_percent;
    findings.within("imageGCHighThresholdPercent", high, PERCENT);
    findings.within("imageGCLowThresholdPercent", low, PERCENT);
    findings.within("iptablesMasqueradeBit", settings.iptables_masquerade_bit, MARK_BITS);
    findings.within("iptablesDropBit", settings.iptables_drop_bit, MARK_BITS);
    findings.within("oomScoreAdj", settings.oom_score_adj, OOM_SCORE_ADJUSTMENTS);
}

fn lower_bounds(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let rows: [(&str, i64, i64); 16] = [
        ("nodeLeaseDurationSeconds", settings.node_lease_duration_seconds.into(), 1),
        ("registryPullQPS", settings.registry_pull_qps.into(), 0),
        ("registryBurst", settings.registry_burst.into(), 0),
        ("eventRecordQPS", settings.event_record_qps.into(), 0),
        ("eventBurst", settings.event_burst.into(), 0),
        ("kubeAPIQPS", settings.kube_apiqps.into(), 0),
        ("kubeAPIBurst", settings.kube_api_burst.into(), 0),
        ("maxPods", settings.max_pods.into(), 0),
        ("podsPerCore", settings.pods_per_core.into(), 0),
        ("maxOpenFiles", settings.max_open_files, 0),
        // -1 reports every image.
        ("nodeStatusMaxImages", settings.node_status_max_images.into(), -1),
        ("containerLogMaxFiles", settings.container_log_max_files.into(), 2),
        ("containerLogMaxWorkers", settings.container_log_max_workers.into(), 1),
        ("maxParallelImagePulls", settings.max_parallel_image_pulls.unwrap_or(1).into(), 1),
        ("imageMinimumGCAge", settings.image_minimum_gc_age.as_nanos(), 0),
        ("imageMaximumGCAge", settings.image_maximum_gc_age.as_nanos(), 0),
    ];
    for (field, value, least) in rows {
        findings.at_least(field, value, least);
    }
}

fn periods(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let quota_period = settings.cpu_cfs_quota_period;
    if input.gate(Gate::CustomCPUCFSQuotaPeriod) {
        let (least, most) = QUOTA_PERIODS;
        if !(least..=most).contains(&quota_period.as_nanos()) {
            findings.refuse("cpuCFSQuotaPeriod", quota_period, "must be between 1ms and 1s");
        }
    } else if quota_period.as_nanos() != KERNEL_DEFAULT_QUOTA_PERIOD {
        findings.refuse(
            "cpuCFSQuotaPeriod",
            quota_period,
            "must be 100ms unless the feature gate CustomCPUCFSQuotaPeriod is on",
        );
    }
    if settings.container_log_monitor_interval.as_nanos() < SHORTEST_LOG_CHECK {
        findings.refuse(
            "containerLogMonitorInterval",
            settings.container_log_monitor_interval,
            "must be 3s or more",
        );
    }
    // With a timeout of zero no call to the runtime succeeds, the first one included.
    for (field, period) in [
        ("syncFrequency", settings.sync_frequency),
        ("runtimeRequestTimeout", settings.runtime_request_timeout),
    ] {
        if period.as_nanos() <= 0 {
            findings.refuse(field, period, "must be more than zero");
        }
    }
}
