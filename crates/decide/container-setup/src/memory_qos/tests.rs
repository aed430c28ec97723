//! Protection and throttling, where they are on.

use super::*;
use crate::testing::{first, node, one};

fn on(tiered: bool) -> NodeSetupInputs {
    let mut node = node();
    node.gates.memory_qos = true;
    node.limits.tiered_memory_reservation = tiered;
    node
}

fn shown(files: &CgroupFiles) -> String {
    let shown: Vec<String> = files.iter().map(|(name, value)| format!("{name}={value}")).collect();
    shown.join(" ")
}

const GUARANTEED: &str =
    "resources: {requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 1, memory: 1Mi}}";
const BURSTABLE: &str = "resources: {requests: {memory: 1Mi}, limits: {memory: 2Mi}}";

#[test]
fn containers() {
    for (container, tiered, expected) in [
        (GUARANTEED, false, "memory.min=0 memory.low=0"),
        (GUARANTEED, true, "memory.min=1048576"),
        // 1 MiB + 0.9 of the second, in whole pages.
        (BURSTABLE, false, "memory.min=0 memory.low=0 memory.high=1990656"),
        (BURSTABLE, true, "memory.low=1048576 memory.high=1990656"),
        ("", true, "memory.min=0 memory.low=0"),
        ("resources: {requests: {memory: 1Mi}}", true, "memory.low=1048576 memory.high=7731044352"),
        ("resources: {requests: {memory: 8Gi}}", true, "memory.low=8589934592"),
        ("resources: {requests: {memory: 9Gi}}", true, "memory.low=9663676416"),
    ] {
        let pod = one(container);
        let files = of_container(&pod, first(&pod), &on(tiered));
        assert_eq!(shown(&files), expected, "{container} {tiered}");
    }
}

#[test]
fn off_is_off() {
    let pod = one(BURSTABLE);
    let mut v1 = on(true);
    v1.machine.cgroup_v2 = false;
    for node in [node(), v1] {
        assert_eq!(of_container(&pod, first(&pod), &node), []);
        assert_eq!(of_pod(&pod, &node), []);
        assert_eq!(of_classes(&node, 1, 2), (vec![], vec![]));
    }
    assert_eq!(of_reserved(&node(), 5), []);
}

#[test]
fn a_node_without_known_memory_throttles_no_container() {
    let mut node = on(false);
    node.allocatable = Default::default();
    let pod = one("");
    assert_eq!(shown(&of_container(&pod, first(&pod), &node)), "memory.min=0 memory.low=0");
    let mut node = on(false);
    node.machine.page_bytes = 0;
    let pod = one(BURSTABLE);
    assert_eq!(shown(&of_container(&pod, first(&pod), &node)), "memory.min=0 memory.low=0");
}

#[test]
fn cgroups_above_containers() {
    assert_eq!(shown(&of_pod(&one(GUARANTEED), &on(true))), "memory.min=1048576");
    assert_eq!(shown(&of_pod(&one(BURSTABLE), &on(true))), "memory.low=1048576");
    assert_eq!(shown(&of_pod(&one(BURSTABLE), &on(false))), "");
    assert_eq!(shown(&of_pod(&one(""), &on(true))), "");
    let (all, burstable) = of_classes(&on(true), 10, 5);
    assert_eq!(
        (shown(&all).as_str(), shown(&burstable).as_str()),
        ("memory.min=15", "memory.low=5")
    );
    let (all, burstable) = of_classes(&on(false), 10, 5);
    assert_eq!(
        (shown(&all).as_str(), shown(&burstable).as_str()),
        ("memory.min=0", "memory.low=0")
    );
    assert_eq!(shown(&of_reserved(&on(false), 5)), "memory.min=5");
}
