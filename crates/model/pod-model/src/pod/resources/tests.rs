//! Sums over containers and the class of service, by table.

use super::{
    QosClass, ResourceList, ResourceRequirements, ResourceSide, computed_qos_class,
    containers_total, effective_limits, effective_requests, qos_class,
};
use crate::Quantity;
use crate::pod::container::{Container, ContainerRestartPolicy};
use crate::pod::spec::{Pod, PodSpec};

/// `cpu=1 memory=2Gi` as a list.
fn list(text: &str) -> ResourceList {
    text.split_whitespace()
        .map(|pair| {
            let (name, amount) = pair.split_once('=').expect("name=amount");
            (name, Quantity::parse(amount).expect("a quantity"))
        })
        .collect()
}

fn requirements(requests: &str, limits: &str) -> ResourceRequirements {
    ResourceRequirements { requests: list(requests), limits: list(limits), claims: Vec::new() }
}

/// `requests|limits`, with `sidecar:` or `init:` in front for the containers that start first.
fn spec(containers: &[&str]) -> PodSpec {
    let mut spec = PodSpec::default();
    for text in containers {
        let (kind, rest) = text.split_once(':').unwrap_or(("", text));
        let (requests, limits) = rest.split_once('|').unwrap_or((rest, ""));
        let mut container =
            Container { resources: requirements(requests, limits), ..Container::default() };
        match kind {
            "pod" => spec.resources = Some(Box::new(container.resources)),
            "overhead" => spec.overhead = container.resources.requests,
            "init" => spec.init_containers.push(container),
            "sidecar" => {
                container.restart_policy = Some(ContainerRestartPolicy::Always);
                spec.init_containers.push(container);
            }
            _ => spec.containers.push(container),
        }
    }
    spec
}

fn shown(list: &ResourceList) -> String {
    let pairs: Vec<String> = list.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    pairs.join(" ")
}

#[test]
fn requests_add_up() {
    for (containers, expected) in [
        (&["cpu=1", "cpu=2 memory=1Gi"][..], "cpu=3 memory=1Gi"),
        (&["cpu=1", "init:cpu=3"], "cpu=3"),
        (&["cpu=1", "init:cpu=500m", "init:cpu=700m"], "cpu=1"),
        (&["cpu=1", "sidecar:cpu=1"], "cpu=2"),
        // An init container runs beside the sidecars before it, not beside those after it.
        (&["cpu=1", "sidecar:cpu=1", "init:cpu=2"], "cpu=3"),
        (&["cpu=1", "init:cpu=2", "sidecar:cpu=1"], "cpu=2"),
        (&["cpu=1", "sidecar:cpu=1", "init:cpu=1", "sidecar:cpu=3"], "cpu=5"),
        (&["cpu=1", "sidecar:memory=1Gi", "init:memory=2Gi"], "cpu=1 memory=3Gi"),
        (&["cpu=1", "overhead:cpu=250m memory=10Mi"], "cpu=1250m memory=10Mi"),
        (&["cpu=1", "pod:cpu=4"], "cpu=4"),
        (&["cpu=1 memory=1Gi", "pod:cpu=4", "overhead:cpu=1"], "cpu=5 memory=1Gi"),
        (&["cpu=1 example.com/gpu=1", "pod:example.com/gpu=5"], "cpu=1 example.com/gpu=1"),
        (&["hugepages-2Mi=4Mi", "pod:hugepages-2Mi=8Mi"], "hugepages-2Mi=8Mi"),
        (&[], ""),
    ] {
        assert_eq!(shown(&effective_requests(&spec(containers))), expected, "{containers:?}");
    }
}

#[test]
fn limits_take_overhead_only_where_there_is_one() {
    for (containers, expected) in [
        (&["|cpu=1", "overhead:cpu=250m memory=10Mi"][..], "cpu=1250m"),
        (&["|cpu=0", "overhead:cpu=250m"], "cpu=0"),
        (&["|cpu=1", "sidecar:|cpu=1", "init:|cpu=3"], "cpu=4"),
        (&["|cpu=1 memory=1Gi", "pod:|cpu=3"], "cpu=3 memory=1Gi"),
    ] {
        assert_eq!(shown(&effective_limits(&spec(containers))), expected, "{containers:?}");
    }
}

#[test]
fn a_sum_beyond_all_quantities_does_not_panic() {
    let huge = format!("cpu={}e2147480000", "9".repeat(38));
    let total = containers_total(&spec(&[&huge, &huge, "cpu=1n"]), ResourceSide::Requests);
    assert_eq!(total.len(), 1);
}

#[test]
fn classes_of_service() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    for (containers, expected) in [
        (&["|"][..], BestEffort),
        (&["cpu=0|cpu=0"], BestEffort),
        (&["ephemeral-storage=1Gi|ephemeral-storage=1Gi"], BestEffort),
        (&["example.com/gpu=1"], BestEffort),
        (&["cpu=1 memory=1Gi|cpu=1 memory=1Gi"], Guaranteed),
        (&["cpu=1 memory=1Gi|cpu=1000m memory=1024Mi"], Guaranteed),
        (&["cpu=1 memory=1Gi|cpu=1 memory=1Gi", "|"], Burstable),
        (&["cpu=1|cpu=1"], Burstable),
        (&["cpu=1 memory=1Gi|cpu=2 memory=1Gi"], Burstable),
        (&["cpu=1 memory=1Gi"], Burstable),
        (&["|cpu=1 memory=1Gi"], Burstable),
        (&["cpu=1 memory=1Gi|cpu=1 memory=1Gi", "init:cpu=1"], Burstable),
        (&["cpu=1 memory=1Gi|cpu=1 memory=1Gi", "init:|"], Burstable),
        (
            &["cpu=1 memory=1Gi|cpu=1 memory=1Gi", "sidecar:cpu=1 memory=1Mi|cpu=1 memory=1Mi"],
            Guaranteed,
        ),
        (&["|", "pod:cpu=1 memory=1Gi|cpu=1 memory=1Gi"], Guaranteed),
        (&["cpu=1", "pod:cpu=1 memory=1Gi|cpu=1 memory=1Gi"], Guaranteed),
        (&["|", "pod:cpu=1|cpu=1"], Burstable),
        (&["|", "pod:cpu=1 memory=1Gi"], Burstable),
        // Even an empty pod level hides what the containers say.
        (&["cpu=1 memory=1Gi|cpu=1 memory=1Gi", "pod:|"], BestEffort),
    ] {
        assert_eq!(computed_qos_class(&spec(containers)), expected, "{containers:?}");
    }
}

#[test]
fn a_class_in_the_status_counts() {
    let mut pod = Pod { spec: spec(&["cpu=1"]).into(), ..Pod::default() };
    assert_eq!(qos_class(&pod), QosClass::Burstable);
    pod.status.qos_class = QosClass::Guaranteed;
    assert_eq!(qos_class(&pod), QosClass::Guaranteed);
}
