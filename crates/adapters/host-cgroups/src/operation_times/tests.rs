//! Metrics of operations on cgroups.

use super::*;
use ports::metrics::text;

#[test]
fn each_kind_of_work_is_counted_apart_and_told_once_done() {
    let times = OperationTimes::default();
    assert_eq!(text(vec![times.family()]), "");
    assert_eq!(times.of(Operation::Destroy, || 7), 7);
    times.add(Operation::Create, Duration::from_millis(7));
    times.add(Operation::Create, Duration::from_secs(11));
    let told = text(vec![times.family()]);
    for line in [
        "# TYPE kubelet_cgroup_manager_duration_seconds histogram",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"0.005\"} 0",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"0.01\"} 1",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"10\"} 1",
        "kubelet_cgroup_manager_duration_seconds_bucket{operation_type=\"create\",le=\"+Inf\"} 2",
        "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"destroy\"} 1",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\nin\n{told}");
    }
    assert!(!told.contains("\"update\""), "{told}");
}
