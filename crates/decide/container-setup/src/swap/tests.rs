//! Swap by kernel, node, class and container.

use super::*;
use crate::testing::{first, node, one, pod_with};

const BURSTABLE: &str = "resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}";

fn swap_of(pod: &Pod, node: &NodeSetupInputs) -> Option<String> {
    let mut resources = LinuxResources { memory_limit: 7, ..Default::default() };
    apply(&mut resources, pod, first(pod), node);
    assert_eq!(resources.memory_swap_limit, 0);
    resources.unified.get("memory.swap.max").cloned()
}

fn limited() -> NodeSetupInputs {
    let mut node = node();
    node.limits.swap = SwapBehavior::LimitedSwap;
    node
}

#[test]
fn swap_is_given_to_burstable_containers() {
    for (container, expected) in [
        (BURSTABLE, "536870912"),
        ("resources: {requests: {memory: 1Gi}}", "536870912"),
        ("", "0"),
        ("resources: {requests: {cpu: 1}}", "0"),
        ("resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}", "0"),
        ("resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}", "0"),
        ("resources: {limits: {memory: 1Gi}}", "0"),
        ("resources: {requests: {memory: 20Gi}}", "0"),
        ("resources: {requests: {memory: 10Gi}}", "5368709120"),
    ] {
        assert_eq!(swap_of(&one(container), &limited()).as_deref(), Some(expected), "{container}");
        assert_eq!(swap_of(&one(container), &node()).as_deref(), Some("0"), "{container}");
    }
    let critical = pod_with(
        "annotations: {kubernetes.io/config.source: file}",
        &format!("{{containers: [{{name: a, image: i, {BURSTABLE}}}]}}"),
    );
    assert_eq!(swap_of(&critical, &limited()).as_deref(), Some("0"));
}

#[test]
fn a_machine_without_memory_gives_none() {
    let mut node = limited();
    node.machine.memory_bytes = 0;
    assert_eq!(swap_of(&one(BURSTABLE), &node).as_deref(), Some("0"));
}

#[test]
fn swap_limits_depend_on_kernel_support() {
    let mut node = limited();
    node.machine.swap_controller = false;
    assert_eq!(swap_of(&one(BURSTABLE), &node), None);
    node.machine.swap_controller = true;
    node.machine.cgroup_v2 = false;
    let pod = one(BURSTABLE);
    let mut resources = LinuxResources { memory_limit: 7, ..Default::default() };
    apply(&mut resources, &pod, first(&pod), &node);
    assert_eq!((resources.memory_swap_limit, resources.unified.len()), (7, 0));
}
