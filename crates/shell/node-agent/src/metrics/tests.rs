//! How counts are rendered, and the labels that upstream has.

use super::names::*;
use super::*;
use ports::metrics::text;

#[test]
fn metrics_without_labels_are_exposed_from_the_start_and_others_once_counted() {
    let metrics = Metrics::default();
    let all = [&RUNNING_PODS, &PREEMPTIONS, &RELIST_DURATION];
    let samples = text(metrics.families(&all));
    assert!(samples.contains("\nkubelet_running_pods 0\n"), "{samples}");
    assert!(samples.contains("\nkubelet_pleg_relist_duration_seconds_count 0\n"), "{samples}");
    assert!(!samples.contains("kubelet_preemptions"), "{samples}");
    metrics.count(&PREEMPTIONS, &["memory"]);
    metrics.count(&PREEMPTIONS, &["memory"]);
    metrics.count(&PREEMPTIONS, &["cpu"]);
    metrics.set(&RUNNING_PODS, &[], 7.0);
    metrics.took(&RELIST_DURATION, &[], Duration::from_millis(30));
    let samples = text(metrics.families(&all));
    for line in [
        "# TYPE kubelet_preemptions counter",
        "kubelet_preemptions{preemption_signal=\"cpu\"} 1",
        "kubelet_preemptions{preemption_signal=\"memory\"} 2",
        "# TYPE kubelet_running_pods gauge",
        "kubelet_running_pods 7",
        "# TYPE kubelet_pleg_relist_duration_seconds histogram",
        "kubelet_pleg_relist_duration_seconds_bucket{le=\"0.025\"} 0",
        "kubelet_pleg_relist_duration_seconds_bucket{le=\"0.05\"} 1",
        "kubelet_pleg_relist_duration_seconds_bucket{le=\"+Inf\"} 1",
        "kubelet_pleg_relist_duration_seconds_sum 0.03",
        "kubelet_pleg_relist_duration_seconds_count 1",
    ] {
        assert!(samples.lines().any(|samples| samples == line), "{line}\nin\n{samples}");
    }
}

#[test]
fn names_are_unique_and_labels_and_bounds_are_sorted() {
    let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
    for metric in ALL {
        assert!(metric.name.starts_with("kubelet_"), "{}", metric.name);
        assert!(metric.labels.is_sorted(), "{}", metric.name);
        assert!(metric.bounds.is_sorted_by(|one, other| one < other), "{}", metric.name);
        let has_bounds = !metric.bounds.is_empty();
        assert_eq!(has_bounds, metric.kind == MetricKind::Histogram, "{}", metric.name);
    }
}

#[test]
fn sizes_of_images_fall_into_upstreams_buckets() {
    let (mega, giga) = (1_u64 << 20, 1_u64 << 30);
    let rows = [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 * mega, "0-10MB"),
        (10 * mega + 1, "10MB-100MB"),
        (100 * mega, "10MB-100MB"),
        (400 * mega, "100MB-500MB"),
        (giga, "500MB-1GB"),
        (giga + 1, "1GB-5GB"),
        (7 * giga, "5GB-10GB"),
        (15 * giga, "10GB-20GB"),
        (25 * giga, "20GB-30GB"),
        (35 * giga, "30GB-40GB"),
        (50 * giga, "40GB-60GB"),
        (100 * giga, "60GB-100GB"),
        (100 * giga + 1, "GT100GB"),
        (u64::MAX, "GT100GB"),
    ];
    for (bytes, label) in rows {
        assert_eq!(image_size(bytes), label, "{bytes}");
    }
}

#[test]
fn unknown_rejection_reasons_make_no_new_labels() {
    let rows = [
        ("OutOfpods", "OutOfpods"),
        ("SysctlForbidden", "SysctlForbidden"),
        ("NodeAffinity", "Other"),
        ("OutOfexample.com/thing", "OutOfExtendedResources"),
        ("anything", "Other"),
    ];
    for (reason, label) in rows {
        assert_eq!(rejection(reason), label);
    }
}
