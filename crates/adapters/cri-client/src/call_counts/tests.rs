//! Metrics of calls, and that every call has a name.

use super::*;
use ports::metrics::text;

#[test]
fn calls_and_failures_are_counted_per_operation() {
    let counts = CallCounts::default();
    assert_eq!(text(counts.families()), "", "nothing was asked yet");
    counts.add("ListPodSandbox", Duration::from_millis(10), false);
    counts.add("ListPodSandbox", Duration::from_secs(2), true);
    counts.add("StartContainer", Duration::from_millis(5), false);
    counts.add("NoSuchCall", Duration::from_millis(5), true);
    let rendered = text(counts.families());
    for line in [
        "kubelet_runtime_operations_total{operation_type=\"list_podsandbox\"} 2",
        "kubelet_runtime_operations_total{operation_type=\"start_container\"} 1",
        "kubelet_runtime_operations_errors_total{operation_type=\"list_podsandbox\"} 1",
        "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"list_podsandbox\",le=\"0.0125\"} 1",
        "kubelet_runtime_operations_duration_seconds_sum{operation_type=\"list_podsandbox\"} 2.01",
    ] {
        assert!(rendered.lines().any(|rendered| rendered == line), "{line}\nin\n{rendered}");
    }
    assert!(!rendered.contains("errors_total{operation_type=\"start_container\"}"), "{rendered}");
    assert!(!rendered.contains("NoSuchCall"), "{rendered}");
}

#[test]
fn bounds_grow_by_two_and_a_half() {
    for pair in BOUNDS.windows(2) {
        assert!((pair[1] / pair[0] - 2.5).abs() < 1e-9, "{pair:?}");
    }
}

#[test]
fn every_call_of_the_client_has_a_name() {
    let calls = include_str!("../calls.rs");
    let names: Vec<&str> = calls
        .lines()
        .filter(|line| line.trim_end().ends_with(';') && line.contains("Response \""))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(operation(name).is_some(), "{name}");
    }
}
