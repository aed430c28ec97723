//! Metrics of operations on cgroups.

use super::*;
use ports::metrics::text;

#[test]
fn operation_durations_are_recorded_per_operation() {
    let times = OperationTimes::default();
    assert_eq!(text(vec![times.family()]), "");
    assert_eq!(times.of(Operation::Destroy, || 7), 7);
    times.add(Operation::Create, Duration::from_millis(7));
    times.add(Operation::Create, Duration::from_secs(11));
    let rendered = text(vec![times.family()]);
    for line in [
        "# TYPE kubelet_cgroup_manager_duration_seconds histogram",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"0.005\"} 0",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"0.01\"} 1",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"10\"} 1",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"+Inf\"} 2",
        "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"destroy\"} 1",
    ] {
        assert!(rendered.lines().any(|rendered| rendered == line), "{line}\nin\n{rendered}");
    }
    assert!(!rendered.contains("\"update\""), "{rendered}");
}
