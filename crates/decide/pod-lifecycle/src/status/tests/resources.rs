//! Resources in the status, of containers and of the pod.

use pod_model::Quantity;
use pod_model::pod::status::{ResourceHealth, ResourceStatus};
use ports::runtime_objects::LinuxResources;

use crate::testing::PlanCase;

#[test]
fn container_resources_are_the_runtimes_values() {
    /// (requested, shares, quota, period, memory) -> (request, cpu limit, memory limit)
    type ResourceRow = (&'static str, i64, i64, i64, i64, &'static str, &'static str, &'static str);
    const ROWS: &[ResourceRow] = &[
        ("500m", 512, 50_000, 100_000, 1_048_576, "500m", "500m", "1Mi"),
        ("500m", 1024, 100_000, 100_000, 2_097_152, "1", "1", "2Mi"),
        ("500m", 0, 0, 0, 0, "500m", "500m", "500m"),
        ("500m", 0, -1, 100_000, 0, "500m", "500m", "500m"),
        ("1m", 2, 1_000, 100_000, 0, "1m", "1m", "1m"),
        ("20m", 2, 1_000, 100_000, 0, "2m", "10m", "20m"),
        // The smallest amount that the kernel can represent, from both sides.
        ("10m", 11, 500, 100_000, 0, "11m", "10m", "10m"),
        ("5m", 3, 1_000, 100_000, 0, "3m", "5m", "5m"),
        ("2m", 2, 1_000, 100_000, 0, "2m", "2m", "2m"),
        ("2m", 1, 1_000, 100_000, 0, "2m", "2m", "2m"),
        ("1m", 2, 1_100, 100_000, 0, "1m", "11m", "1m"),
        // What the runtime does not report stays as requested.
        ("500m", 0, 0, 100_000, 0, "500m", "500m", "500m"),
        ("500m", -1, 50_000, 100_000, -1, "500m", "500m", "500m"),
    ];
    for (requested, cpu_shares, cpu_quota, cpu_period, memory_limit, request, cpu, memory) in ROWS {
        let mut case = PlanCase::read("pod: Always app:a\nseen: s0; a#0 running");
        let amount = Quantity::parse(requested).unwrap();
        let mut pod = (*case.desired.pod).clone();
        for name in ["cpu", "memory"] {
            pod.spec.containers[0].resources.limits.insert(name, amount);
            pod.spec.containers[0].resources.requests.insert(name, amount);
        }
        case.desired.pod = std::sync::Arc::new(pod);
        case.observed.containers[0].record.resources = Some(LinuxResources {
            cpu_shares: *cpu_shares,
            cpu_quota: *cpu_quota,
            cpu_period: *cpu_period,
            memory_limit: *memory_limit,
            ..LinuxResources::default()
        });
        let status = case.plan().status;
        let container = status.container("a").unwrap();
        let resources = container.resources.as_ref().unwrap();
        let text = |found: Option<&Quantity>| found.map(ToString::to_string).unwrap_or_default();
        assert_eq!(text(resources.requests.get("cpu")), *request, "{requested} {cpu_shares}");
        assert_eq!(text(resources.limits.get("cpu")), *cpu, "{requested} {cpu_quota}");
        assert_eq!(text(resources.limits.get("memory")), *memory, "{requested} {memory_limit}");
        assert_eq!(container.allocated_resources.get("cpu"), Some(&amount));
    }
}

#[test]
fn resources_without_a_request_are_not_reported() {
    let mut case = PlanCase::read("pod: Always app:a\nseen: s0; a#0 running");
    case.observed.containers[0].record.resources = Some(LinuxResources {
        cpu_shares: 1024,
        cpu_quota: 50_000,
        cpu_period: 100_000,
        memory_limit: 1_048_576,
        ..LinuxResources::default()
    });
    let status = case.plan().status;
    let resources = status.container("a").unwrap().resources.as_ref().unwrap();
    assert!(resources.limits.is_empty() && resources.requests.is_empty(), "{resources:?}");
}

#[test]
fn the_status_shows_the_qos_class_and_the_allocated_resources() {
    let mut case = PlanCase::read("pod: Always app:a app:b\nseen: s0");
    let mut pod = (*case.desired.pod).clone();
    for container in &mut pod.spec.containers {
        container.resources.requests.insert("cpu", Quantity::parse("200m").unwrap());
        container.resources.limits.insert("cpu", Quantity::parse("300m").unwrap());
    }
    case.desired.pod = std::sync::Arc::new(pod);
    let status = case.plan().status;
    assert_eq!(status.qos_class.as_str(), "Burstable");
    let text = |found: Option<&Quantity>| found.map(ToString::to_string).unwrap_or_default();
    let resources = status.resources.as_ref().unwrap();
    assert_eq!(text(status.allocated_resources.get("cpu")), "400m");
    assert_eq!(text(resources.requests.get("cpu")), "400m");
    assert_eq!(text(resources.limits.get("cpu")), "600m");
}

#[test]
fn the_health_of_devices_is_reported_of_regular_containers() {
    let mut case = PlanCase::read("pod: Always init:i app:a app:b\nseen: s0; i#0 exited 0");
    let healthy = ResourceHealth { resource_id: "1".into(), health: "Healthy".into() };
    let device = ResourceStatus { name: "example.com/gpu".into(), resources: vec![healthy] };
    for container in ["i", "a", "gone"] {
        case.facts.allocated_resources.insert(container.to_owned(), vec![device.clone()]);
    }
    let status = case.plan().status;
    assert_eq!(status.container("a").unwrap().allocated_resources_status, [device]);
    assert!(status.container("b").unwrap().allocated_resources_status.is_empty());
    assert!(status.init_container_statuses[0].allocated_resources_status.is_empty());
}
