//! Preempted pods, by table.

use super::*;
use crate::admission::NodeCapacity;
use crate::admission::node_capacity::shortages;
use pod_model::Quantity;
use pod_model::pod::Container;

/// `name class cpu memory [priority]`; the class is `b`est effort, bu`r`stable, `g`uaranteed, and a
/// capital letter makes it a static pod.
fn pod(words: &str) -> Pod {
    let words: Vec<&str> = words.split_whitespace().collect();
    let [name, class, cpu, memory, ..] = words.as_slice() else { panic!("{words:?}") };
    let mut container = Container::default();
    if !class.eq_ignore_ascii_case("b") {
        for (resource, amount) in [("cpu", cpu), ("memory", memory)] {
            let amount = Quantity::parse(amount).unwrap();
            container.resources.requests.insert(resource, amount);
            if class.eq_ignore_ascii_case("g") {
                container.resources.limits.insert(resource, amount);
            }
        }
    }
    let mut pod = Pod::default();
    pod.metadata.name = Box::from(*name);
    pod.spec.priority = words.get(4).map(|text| text.parse().unwrap());
    pod.spec.containers.push(container);
    if class.chars().all(char::is_uppercase) {
        pod.metadata.annotations.insert("kubernetes.io/config.source", Box::from("file"));
    }
    pod
}

/// The preempted pods on a node that is exactly full with `others`, with this limit on the number
/// of pods.
fn gone(pods: i64, asking: &str, others: &[&str]) -> String {
    let (asking, others) = (pod(asking), others.iter().map(|each| pod(each)).collect::<Vec<_>>());
    let sum = |resource: &str| others.iter().map(|pod| demand(pod, resource)).sum::<i64>();
    let allocatable = [("cpu", format!("{}m", sum("cpu"))), ("memory", sum("memory").to_string())];
    let node_capacity = NodeCapacity {
        pods,
        allocatable: allocatable
            .map(|(name, amount)| (name, Quantity::parse(&amount).unwrap()))
            .into_iter()
            .collect(),
        ..NodeCapacity::default()
    };
    let others: Vec<&Pod> = others.iter().collect();
    let lacking = shortages(&asking, &node_capacity, &others);
    assert!(!lacking.is_empty(), "there is room");
    match victims(&asking, &others, &lacking) {
        Ok(chosen) => {
            let names: Vec<String> =
                chosen.iter().map(|pod| pod.metadata.name.to_string()).collect();
            names.join(" ")
        }
        Err(why) => why.replace("no set of running pods found to reclaim resources: ", "nobody: "),
    }
}

#[test]
fn the_worst_class_that_suffices_goes() {
    for (asking, others, expected) in [
        ("new G 500m 1", vec!["a g 600m 1", "b r 600m 1"], "b"),
        ("new G 500m 1", vec!["a g 600m 1"], "a"),
        // Best effort frees no CPU.
        ("new G 500m 1", vec!["a b 0 0", "b g 600m 1"], "b"),
        // Both burstable ones are not enough; with the guaranteed one, one of them is.
        ("new G 900m 1", vec!["a r 100m 1", "b r 200m 1", "c g 700m 1"], "b c"),
        // The better class is needed, and then the worse is not.
        ("new G 700m 1", vec!["a r 100m 1", "c g 800m 1"], "c"),
    ] {
        assert_eq!(gone(10, asking, &others), expected, "{asking} {others:?}");
    }
}

#[test]
fn few_and_small_ones_go() {
    for (asking, others, expected) in [
        // One that suffices rather than two; of two that suffice the smaller.
        ("new G 400m 1", vec!["a r 200m 1", "b r 200m 1", "c r 500m 1"], "c"),
        ("new G 100m 1", vec!["a r 600m 9", "b r 300m 5", "c r 100m 1"], "c"),
        ("new G 100m 1", vec!["a r 600m 5", "b r 400m 9"], "a"),
        ("new G 100m 1", vec!["a r 600m 5", "b r 400m 5"], "b"),
        // Both resources weigh the same.
        ("new G 500m 500", vec!["a r 500m 100", "b r 100m 500", "c r 400m 400"], "c a"),
        // Whatever their units.
        ("new G 100m 10000", vec!["a r 100m 1000", "b r 10m 9000"], "a b"),
        // A little of each is nearer than all of one.
        ("new G 500m 500", vec!["a r 500m 150", "b r 150m 500", "c r 300m 300"], "c a b"),
    ] {
        assert_eq!(gone(10, asking, &others), expected, "{asking} {others:?}");
    }
}

#[test]
fn a_place_is_a_resource_too() {
    assert_eq!(gone(2, "new G 0 0", &["a g 1m 1", "b b 0 0"]), "b");
    assert_eq!(gone(1, "new G 0 0", &["a g 1m 1"]), "a");
    assert_eq!(gone(1, "new G 0 0", &["a G 1m 1"]), "nobody: [(res: pods, q: 1), ]");
}

#[test]
fn only_pods_of_lower_priority_are_preempted() {
    let no_victim = "nobody: [(res: cpu, q: 500), (res: memory, q: 1), ]";
    for (asking, other, expected) in [
        ("new G 500m 1", "a g 500m 1", "a"),
        ("new G 500m 1", "a g 500m 1 1999999999", "a"),
        ("new G 500m 1", "a g 500m 1 2000000000", no_victim),
        ("new G 500m 1", "a G 500m 1", no_victim),
        ("new G 500m 1 5", "a G 500m 1", no_victim),
        ("new G 500m 1", "a G 500m 1 5", no_victim),
        ("new G 500m 1 5", "a G 500m 1 4", "a"),
        ("new G 500m 1 5", "a G 500m 1 5", no_victim),
        ("new G 500m 1 5", "a G 500m 1 6", no_victim),
        ("new g 500m 1 2000000001", "a g 500m 1 2000000000", "a"),
    ] {
        assert_eq!(gone(10, asking, &[other]), expected, "{asking}, {other}");
    }
}

#[test]
fn all_or_none() {
    let others = ["a r 300m 1", "b r 300m 1", "c G 400m 1"];
    assert_eq!(gone(10, "new G 600m 1", &others), "b a");
    assert_eq!(gone(10, "new G 601m 1", &others), "nobody: [(res: cpu, q: 1), ]");
}
