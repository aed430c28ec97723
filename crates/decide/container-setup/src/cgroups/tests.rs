//! Names and limits of the tree above containers.

use super::*;
use crate::testing::{amounts, node, one, pod, texts};

const GUARANTEED: &str =
    "resources: {requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 1, memory: 1Mi}}";
const BURSTABLE: &str = "resources: {requests: {cpu: 250m}}";

#[test]
fn names() {
    for (container, expected) in [
        (GUARANTEED, "kubepods/podu-1"),
        (BURSTABLE, "kubepods/burstable/podu-1"),
        ("", "kubepods/besteffort/podu-1"),
    ] {
        assert_eq!(of_pod(&[], &one(container)).join("/"), expected);
        let root = texts(&["a", "b"]);
        assert_eq!(of_pod(&root, &one(container)).join("/"), format!("a/b/{expected}"));
    }
    assert_eq!(all_pods(&[]), ["kubepods"]);
    assert_eq!(of_class(&[], &QosClass::Guaranteed), ["kubepods"]);
    for (last, uid) in [("podu-1", Some("u-1")), ("pod", None), ("burstable", None)] {
        assert_eq!(uid_of_name(last), uid, "{last}");
    }
}

fn shown(limits: &CgroupLimits) -> String {
    format!(
        "shares {:?} quota {:?} period {:?} memory {:?} pids {:?}",
        limits.cpu_shares, limits.cpu_quota, limits.cpu_period, limits.memory_bytes, limits.pids
    )
    .replace("Some(", "")
    .replace(')', "")
}

#[test]
fn pods() {
    let two = |first: &str, second: &str, more: &str| {
        pod(&format!(
            "{{{more} containers: [{{name: a, image: i, resources: {{{first}}}}}, {{name: b, image: i, resources: {{{second}}}}}]}}"
        ))
    };
    let limited = "limits: {cpu: 500m, memory: 1Mi}";
    for (pod, expected) in [
        (one(""), "shares 2 quota None period None memory None pids None"),
        (one(GUARANTEED), "shares 1024 quota 100000 period 100000 memory 1048576 pids None"),
        (one(BURSTABLE), "shares 256 quota None period None memory None pids None"),
        (
            two(limited, "limits: {cpu: 500m, memory: 1Mi}, requests: {cpu: 100m}", ""),
            "shares 102 quota 100000 period 100000 memory 2097152 pids None",
        ),
        (
            two("limits: {cpu: 500m}", "", ""),
            "shares 2 quota None period None memory None pids None",
        ),
        (
            two("limits: {memory: 1Mi}", "limits: {memory: 1Mi}", ""),
            "shares 2 quota None period None memory 2097152 pids None",
        ),
        (
            two(limited, limited, "initContainers: [{name: i, image: i}],"),
            "shares 2 quota None period None memory None pids None",
        ),
        (
            two(
                limited,
                limited,
                "initContainers: [{name: s, image: i, restartPolicy: Always, resources: {limits: {cpu: 500m, memory: 1Mi}}}, {name: i, image: i}],",
            ),
            "shares 2 quota 150000 period 100000 memory 3145728 pids None",
        ),
        (
            two(
                limited,
                limited,
                "initContainers: [{name: i, image: i}, {name: s, image: i, restartPolicy: Always, resources: {limits: {cpu: 500m, memory: 1Mi}}}],",
            ),
            "shares 2 quota None period None memory None pids None",
        ),
        (
            two(
                limited,
                limited,
                "initContainers: [{name: j, image: i, resources: {limits: {cpu: 500m, memory: 1Mi}}}, {name: i, image: i}],",
            ),
            "shares 2 quota None period None memory None pids None",
        ),
        (
            two("requests: {cpu: 100m}", "", "resources: {limits: {cpu: 1}},"),
            "shares 102 quota 100000 period 100000 memory None pids None",
        ),
        (
            two("requests: {cpu: 100m}", "", "resources: {limits: {memory: 1Mi}},"),
            "shares 102 quota None period None memory 1048576 pids None",
        ),
        (
            two("requests: {cpu: 100m}", "", "overhead: {cpu: 400m},"),
            "shares 512 quota None period None memory None pids None",
        ),
        (
            two("", "", "overhead: {cpu: 400m},"),
            "shares 2 quota None period None memory None pids None",
        ),
    ] {
        let limits = pod_limits(&pod, &node(), &PodSetupInputs::default());
        assert_eq!(shown(&limits), expected, "{:?}", pod.spec.containers[0].resources);
    }
}

#[test]
fn the_nodes_settings() {
    let mut node = node();
    node.limits.pod_pids = 100;
    node.limits.cpu_period = 5000;
    node.machine.huge_page_sizes = texts(&["2MB"]);
    let hugepages = one(
        "resources: {requests: {cpu: 1, memory: 1Mi, hugepages-2Mi: 4Mi}, limits: {cpu: 1, memory: 1Mi, hugepages-2Mi: 4Mi}}",
    );
    let limits = pod_limits(&hugepages, &node, &PodSetupInputs::default());
    assert_eq!(shown(&limits), "shares 1024 quota 5000 period 5000 memory 1048576 pids 100");
    assert_eq!(limits.hugepages, [("2MB".to_owned(), 4 << 20)]);
    let exclusive = PodSetupInputs { exclusive_cpus: true, ..Default::default() };
    assert_eq!(pod_limits(&hugepages, &node, &exclusive).cpu_quota, Some(-1));
    node.limits.cpu_quota = false;
    assert_eq!(pod_limits(&hugepages, &node, &PodSetupInputs::default()).cpu_quota, Some(-1));
    node.limits.pod_pids = 0;
    assert_eq!(pod_limits(&hugepages, &node, &PodSetupInputs::default()).pids, None);
    node.gates.memory_qos = true;
    node.limits.tiered_memory_reservation = true;
    let unified = pod_limits(&hugepages, &node, &PodSetupInputs::default()).unified;
    assert_eq!(unified, [("memory.min".to_owned(), "1048576".to_owned())]);
}

#[test]
fn classes_weigh_what_their_pods_ask_for() {
    let mut node = node();
    node.machine.huge_page_sizes = texts(&["2MB"]);
    let pods = [one(BURSTABLE), one(BURSTABLE), one(GUARANTEED), one("")];
    let limits = class_limits(&pods, &node);
    assert_eq!(limits.burstable.cpu_shares, Some(512));
    assert_eq!(limits.best_effort.cpu_shares, Some(2));
    assert_eq!(limits.guaranteed.cpu_shares, None);
    let unbounded = [("2MB".to_owned(), 1 << 62)];
    for class in [&limits.guaranteed, &limits.burstable, &limits.best_effort] {
        assert_eq!(class.hugepages, unbounded);
        assert_eq!((class.memory_bytes, class.pids, class.cpu_quota), (None, None, None));
    }
    assert_eq!(class_limits(&[], &node).burstable.cpu_shares, Some(2));
    node.gates.memory_qos = true;
    node.limits.tiered_memory_reservation = true;
    let asking = [one(GUARANTEED), one("resources: {requests: {memory: 2Mi}}")];
    let limits = class_limits(&asking, &node);
    assert_eq!(limits.guaranteed.unified, [("memory.min".to_owned(), (3 << 20).to_string())]);
    assert_eq!(limits.burstable.unified, [("memory.low".to_owned(), (2 << 20).to_string())]);
}

#[test]
fn all_pods_and_what_is_reserved() {
    let mut node = node();
    node.machine.huge_page_sizes = texts(&["2MB"]);
    let list =
        amounts(&[("cpu", "2"), ("memory", "1Gi"), ("pid", "1000"), ("hugepages-2Mi", "2Mi")]);
    let limits = all_pods_limits(&list, &node);
    assert_eq!(shown(&limits), "shares 2048 quota None period None memory 1073741824 pids 1000");
    assert_eq!(limits.hugepages, [("2MB".to_owned(), 1 << 62)]);
    let limits = reserved_limits(&list, false, &node);
    assert_eq!(shown(&limits), "shares 2048 quota None period None memory 1073741824 pids 1000");
    assert_eq!(limits.hugepages, [("2MB".to_owned(), 2 << 20)]);
    let limits = reserved_limits(&list, true, &node);
    assert_eq!(shown(&limits), "shares 2048 quota None period None memory None pids None");
    assert_eq!((limits.hugepages.len(), limits.unified.len()), (0, 0));
    node.gates.memory_qos = true;
    let limits = reserved_limits(&list, false, &node);
    assert_eq!(limits.unified, [("memory.min".to_owned(), (1 << 30).to_string())]);
    assert_eq!(
        shown(&all_pods_limits(&amounts(&[]), &node)),
        "shares None quota None period None memory None pids None"
    );
}
