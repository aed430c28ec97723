//! Amounts for variables, with defaults and divisors.

use super::*;
use crate::testing::{first, node, one, pod};

fn read_from(pod: &Pod, selector: &str, node: &NodeSetupInputs) -> Result<String, String> {
    let with = one(&format!("env: [{{name: X, valueFrom: {{resourceFieldRef: {{{selector}}}}}}}]"));
    let from = first(&with).env.first().and_then(|it| it.value_from.as_ref());
    let selector = from.and_then(|it| it.resource_field_ref.as_ref()).expect("a selector");
    value(selector, pod, first(pod), node).map_err(|error| error.to_string())
}

#[test]
fn amounts_and_divisors() {
    let pod = one(
        "resources: {requests: {cpu: 250m, memory: 100Mi, ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi}, \
                     limits: {cpu: 1500m, memory: 200Mi, ephemeral-storage: 2Gi, hugepages-2Mi: 4Mi}}",
    );
    for (selector, expected) in [
        ("resource: requests.cpu", "1"),
        ("resource: requests.cpu, divisor: 1m", "250"),
        ("resource: limits.cpu", "2"),
        ("resource: limits.cpu, divisor: 1m", "1500"),
        ("resource: limits.cpu, divisor: 100m", "15"),
        ("resource: requests.memory", "104857600"),
        ("resource: requests.memory, divisor: 1Mi", "100"),
        ("resource: limits.memory, divisor: 1Gi", "1"),
        ("resource: limits.memory, divisor: 3Mi", "67"),
        ("resource: requests.ephemeral-storage, divisor: 1Mi", "1024"),
        ("resource: limits.ephemeral-storage, divisor: 1Gi", "2"),
        ("resource: requests.hugepages-2Mi, divisor: 1Mi", "4"),
        ("resource: limits.hugepages-2Mi, divisor: 1Mi", "4"),
        ("resource: limits.cpu, divisor: \"0\"", "2"),
    ] {
        assert_eq!(read_from(&pod, selector, &node()).as_deref(), Ok(expected), "{selector}");
    }
}

#[test]
fn unset_limits_are_those_of_the_pod_or_the_node() {
    let plain = one("");
    for (selector, expected) in [
        ("resource: limits.cpu", "4"),
        ("resource: limits.memory, divisor: 1Gi", "8"),
        ("resource: limits.ephemeral-storage, divisor: 1Gi", "20"),
        ("resource: limits.hugepages-2Mi", "0"),
        ("resource: requests.cpu", "0"),
        ("resource: requests.memory", "0"),
    ] {
        assert_eq!(read_from(&plain, selector, &node()).as_deref(), Ok(expected), "{selector}");
    }
    let zero = one("resources: {limits: {cpu: \"0\"}}");
    assert_eq!(read_from(&zero, "resource: limits.cpu", &node()).as_deref(), Ok("4"));
    let of_pod = pod("{resources: {limits: {cpu: \"2\"}}, containers: [{name: app, image: i}]}");
    assert_eq!(read_from(&of_pod, "resource: limits.cpu", &node()).as_deref(), Ok("2"));
    assert_eq!(
        read_from(&of_pod, "resource: limits.memory, divisor: 1Gi", &node()).as_deref(),
        Ok("8")
    );
    let mut gateless = node();
    gateless.gates.pod_level_resources = false;
    assert_eq!(read_from(&of_pod, "resource: limits.cpu", &gateless).as_deref(), Ok("4"));
    let mut unknown = node();
    unknown.allocatable = Default::default();
    assert_eq!(read_from(&of_pod, "resource: limits.cpu", &unknown).as_deref(), Ok("0"));
}

#[test]
fn other_containers_by_name() {
    let pod = pod(
        "{initContainers: [{name: init, image: i, resources: {limits: {cpu: \"3\"}}}, {name: bare, image: i}], \
          containers: [{name: app, image: i}, {name: other, image: i, resources: {limits: {cpu: \"2\"}}}]}",
    );
    for (name, expected) in [("other", "2"), ("init", "3"), ("app", "4"), ("bare", "0")] {
        let selector = format!("containerName: {name}, resource: limits.cpu");
        assert_eq!(read_from(&pod, &selector, &node()).as_deref(), Ok(expected), "{name}");
    }
    let error = read_from(&pod, "containerName: gone, resource: limits.cpu", &node());
    assert_eq!(error, Err("container gone not found".to_owned()));
}

#[test]
fn resources_that_are_not_known() {
    for resource in ["limits.gold", "cpu", "limits", "claims.cpu", "requests.storage", ""] {
        let error = read_from(&one(""), &format!("resource: \"{resource}\""), &node());
        assert_eq!(error, Err(format!("unsupported container resource : {resource}")));
    }
}

#[test]
fn rounding_goes_up() {
    for (amount, divisor, expected) in
        [(0, 5, 0), (1, 5, 1), (5, 5, 1), (6, 5, 2), (-1, 5, 0), (-6, 5, -1), (5, 0, 0), (5, -1, 0)]
    {
        assert_eq!(rounded_up(amount, divisor), expected, "{amount}/{divisor}");
    }
}
