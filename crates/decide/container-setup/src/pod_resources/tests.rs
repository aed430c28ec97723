//! The pod's sums, with the gate on and off.

use super::*;
use crate::testing::{amounts, first, pod};

fn off() -> SetupGates {
    SetupGates { pod_level_resources: false, ..SetupGates::default() }
}

fn sample() -> Pod {
    pod(
        "{overhead: {cpu: 10m, memory: 1Mi}, resources: {requests: {cpu: 500m}, limits: {cpu: \"2\", memory: 64Mi}}, \
          containers: [{name: a, image: i, resources: {requests: {cpu: 100m, memory: 10Mi}, limits: {memory: 20Mi}}}, \
                       {name: b, image: i, resources: {requests: {cpu: 100m}, limits: {cpu: 300m, memory: 5Mi}}}]}",
    )
}

#[test]
fn sums_with_and_without_pod_level_resources() {
    let on = SetupGates::default();
    let pod = sample();
    assert_eq!(requests(&pod, &on), amounts(&[("cpu", "510m"), ("memory", "11Mi")]));
    assert_eq!(requests(&pod, &off()), amounts(&[("cpu", "210m"), ("memory", "11Mi")]));
    assert_eq!(limits(&pod, &on), amounts(&[("cpu", "2010m"), ("memory", "65Mi")]));
    assert_eq!(limits(&pod, &off()), amounts(&[("cpu", "310m"), ("memory", "26Mi")]));
    let plain = |gates: &SetupGates, side| without_overhead(&pod, gates, side);
    assert_eq!(plain(&on, ResourceSide::Requests), amounts(&[("cpu", "500m"), ("memory", "10Mi")]));
    assert_eq!(
        plain(&off(), ResourceSide::Requests),
        amounts(&[("cpu", "200m"), ("memory", "10Mi")])
    );
    assert_eq!(plain(&on, ResourceSide::Limits), amounts(&[("cpu", "2"), ("memory", "64Mi")]));
    assert_eq!(
        plain(&off(), ResourceSide::Limits),
        amounts(&[("cpu", "300m"), ("memory", "25Mi")])
    );
}

#[test]
fn overhead_that_no_container_asked_for_counts_too() {
    let pod = pod("{overhead: {memory: 1Mi}, containers: [{name: a, image: i}]}");
    assert_eq!(requests(&pod, &off()), amounts(&[("memory", "1Mi")]));
    assert_eq!(limits(&pod, &off()), amounts(&[]));
}

#[test]
fn pod_level_resources_count_where_allowed() {
    for (resources, requests, limits) in [
        ("{requests: {cpu: 1}}", true, false),
        ("{limits: {memory: 1Mi}}", false, true),
        ("{limits: {hugepages-2Mi: 2Mi}}", false, true),
        ("{requests: {example.com/gpu: 1}}", false, false),
        ("{}", false, false),
    ] {
        let pod = pod(&format!("{{resources: {resources}, containers: [{{name: a, image: i}}]}}"));
        let found = (
            has_pod_level_requests(&pod, &SetupGates::default()),
            has_pod_level_limits(&pod, &SetupGates::default()),
        );
        assert_eq!(found, (requests, limits), "{resources}");
        assert!(pod_level(&pod, &off()).is_none());
    }
}

#[test]
fn a_container_without_a_limit_has_the_pods() {
    let pod = sample();
    let on = SetupGates::default();
    let milli =
        |container, gates: &SetupGates| limit_of(&pod, container, gates, "cpu").milli_value();
    assert_eq!(milli(first(&pod), &on), 2000);
    assert_eq!(milli(first(&pod), &off()), 0);
    assert_eq!(milli(&pod.spec.containers[1], &on), 300);
}
