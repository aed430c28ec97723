//! Resource settings of containers and sandboxes.

use super::*;
use crate::testing::{first, node, one, pod, texts};

fn made(container: &str, node: &NodeSetupInputs) -> LinuxResources {
    let pod = one(container);
    of_container(&pod, first(&pod), node, false)
}

#[test]
fn shares_quota_and_memory() {
    for (container, shares, quota, memory) in [
        ("", 2, 0, 0),
        ("resources: {requests: {cpu: 250m}}", 256, 0, 0),
        ("resources: {limits: {cpu: 500m}}", 512, 50_000, 0),
        ("resources: {requests: {cpu: 250m}, limits: {cpu: 500m}}", 256, 50_000, 0),
        ("resources: {requests: {cpu: \"0\"}, limits: {cpu: 500m}}", 2, 50_000, 0),
        ("resources: {limits: {cpu: 1m}}", 2, 1000, 0),
        ("resources: {limits: {memory: 1Mi}}", 2, 0, 1 << 20),
    ] {
        let resources = made(container, &node());
        let found = (resources.cpu_shares, resources.cpu_quota, resources.memory_limit);
        assert_eq!(found, (shares, quota, memory), "{container}");
        assert_eq!(resources.cpu_period, 100_000);
    }
}

#[test]
fn the_nodes_way_with_quotas() {
    let container = "resources: {limits: {cpu: 500m}}";
    let mut node = node();
    node.limits.cpu_period = 5000;
    let resources = made(container, &node);
    assert_eq!((resources.cpu_quota, resources.cpu_period), (2500, 5000));
    node.gates.custom_cpu_period = false;
    let resources = made(container, &node);
    assert_eq!((resources.cpu_quota, resources.cpu_period), (50_000, 100_000));
    node.limits.cpu_quota = false;
    let resources = made(container, &node);
    assert_eq!((resources.cpu_quota, resources.cpu_period), (0, 0));
    let pod = one(container);
    let exclusive = of_container(&pod, first(&pod), &crate::testing::node(), true);
    assert_eq!((exclusive.cpu_quota, exclusive.cpu_period), (-1, 100_000));
}

#[test]
fn the_rest_of_a_container() {
    let mut node = node();
    node.machine.huge_page_sizes = texts(&["2MB"]);
    let resources = made("resources: {requests: {memory: 1Gi}}", &node);
    assert_eq!(resources.oom_score_adj, 900);
    assert_eq!(resources.hugepage_limits, [("2MB".to_owned(), 0)]);
    assert_eq!(resources.unified, [("memory.swap.max".to_owned(), "0".to_owned())].into());
    node.limits.single_process_oom_kill = false;
    node.gates.memory_qos = true;
    let resources = made("resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}", &node);
    let names: Vec<&str> = resources.unified.keys().map(String::as_str).collect();
    assert_eq!(names, ["memory.low", "memory.min", "memory.oom.group", "memory.swap.max"]);
    assert_eq!(resources.unified["memory.oom.group"], "1");
    node.machine.cgroup_v2 = false;
    assert!(made("", &node).unified.is_empty());
}

#[test]
fn a_pods_limit_is_its_containers() {
    let pod =
        pod("{resources: {limits: {cpu: \"1\", memory: 1Mi}}, containers: [{name: a, image: i}]}");
    let resources = of_container(&pod, first(&pod), &node(), false);
    assert_eq!((resources.cpu_quota, resources.memory_limit), (100_000, 1 << 20));
}

#[test]
fn sandboxes() {
    let pod = pod("{overhead: {cpu: 100m, memory: 2Mi}, containers: [\
        {name: a, image: i, resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 1Mi}}}, \
        {name: b, image: i, resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 1Mi}}}]}");
    let sandbox = of_sandbox(&pod, &node(), &PodSetupInputs::default());
    let expected = LinuxResources {
        cpu_shares: 512,
        cpu_quota: 100_000,
        cpu_period: 100_000,
        memory_limit: 2 << 20,
        ..Default::default()
    };
    assert_eq!(sandbox, expected);
    let exclusive = PodSetupInputs { exclusive_cpus: true, ..Default::default() };
    assert_eq!(of_sandbox(&pod, &node(), &exclusive).cpu_quota, -1);
    let overhead = of_overhead(&pod, &node());
    let expected = LinuxResources {
        cpu_shares: 102,
        cpu_quota: 10_000,
        cpu_period: 100_000,
        memory_limit: 2 << 20,
        ..Default::default()
    };
    assert_eq!(overhead, expected);
    assert_eq!(of_overhead(&one(""), &node()), LinuxResources::default());
    let only_limit = one("resources: {limits: {cpu: 500m}}");
    assert_eq!(of_sandbox(&only_limit, &node(), &PodSetupInputs::default()).cpu_shares, 512);
    assert_eq!(of_sandbox(&one(""), &node(), &PodSetupInputs::default()).cpu_shares, 2);
}
