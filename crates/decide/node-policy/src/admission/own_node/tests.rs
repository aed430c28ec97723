//! What comes from the Node object and what stays this machine's.

use super::*;
use pod_model::pod::ResourceList;
use ports::cluster_objects::NodeTaint;
use std::collections::BTreeMap;

type Pairs = &'static [(&'static str, &'static str)];

fn amounts(amounts: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    let parsed = amounts.iter().map(|(name, text)| {
        let amount = Quantity::parse(text).unwrap_or(Quantity::ZERO);
        ((*name).to_owned(), amount)
    });
    parsed.collect()
}

fn list(of: &[(&str, &str)]) -> ResourceList {
    amounts(of).into_iter().collect()
}

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn labels_taints_and_allocatable_are_the_objects() {
    let of_machine = NodeCapacity {
        name: "n".to_owned(),
        labels: labels(&[("kubernetes.io/os", "linux"), ("old", "a")]),
        pods: 110,
        allocatable: list(&[("cpu", "4"), ("memory", "8Gi")]),
        compares_tolerations: true,
        waits_for_terminating_pods: true,
        ..NodeCapacity::default()
    };
    let taint = NodeTaint { key: "k".to_owned(), ..NodeTaint::default() };
    // (labels, allocatable) of the object, then (labels, pods, allocatable) that admission has
    let rows: [(Pairs, Pairs, Pairs, i64, Pairs); 5] = [
        (&[], &[], &[("kubernetes.io/os", "linux")], 110, &[("cpu", "4"), ("memory", "8Gi")]),
        (
            &[("disk", "ssd"), ("kubernetes.io/os", "linux")],
            &[("cpu", "1"), ("pods", "5")],
            &[("disk", "ssd"), ("kubernetes.io/os", "linux")],
            5,
            &[("cpu", "1"), ("pods", "5")],
        ),
        (
            &[("kubernetes.io/os", "plan9")],
            &[("pods", "0"), ("example.com/gpu", "2")],
            &[("kubernetes.io/os", "linux")],
            0,
            &[("example.com/gpu", "2"), ("pods", "0")],
        ),
        (&[], &[("cpu", "1")], &[("kubernetes.io/os", "linux")], 0, &[("cpu", "1")]),
        (
            &[],
            &[("pods", "7"), ("cpu", "1500m")],
            &[("kubernetes.io/os", "linux")],
            7,
            &[("cpu", "1500m"), ("pods", "7")],
        ),
    ];
    for (of_node, reported, expected_labels, pods, allocatable) in rows {
        let mut node = NodeObject::default();
        node.metadata.labels = labels(of_node);
        node.spec.taints = vec![taint.clone()];
        node.status.allocatable = amounts(reported);
        let expected = NodeCapacity {
            labels: labels(expected_labels),
            taints: vec![taint.clone()],
            pods,
            allocatable: list(allocatable),
            ..of_machine.clone()
        };
        assert_eq!(of_machine.with_node(&node), expected, "{of_node:?} {reported:?}");
    }
}
