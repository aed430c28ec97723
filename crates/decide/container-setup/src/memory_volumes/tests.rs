//! The minimum of the limits.

use super::*;
use crate::testing::{amounts, node, pod};

#[test]
fn the_least_counts() {
    let of = |more: &str, limits: [&str; 2]| {
        let [a, b] = limits.map(|memory| match memory {
            "" => String::new(),
            memory => format!(", resources: {{limits: {{memory: {memory}}}}}"),
        });
        pod(&format!("{{{more} containers: [{{name: a, image: i{a}}}, {{name: b, image: i{b}}}]}}"))
    };
    let (plain, one, both) = (of("", ["", ""]), of("", ["64Mi", ""]), of("", ["64Mi", "64Mi"]));
    let helped = of("initContainers: [{name: i, image: i}],", ["64Mi", "64Mi"]);
    let by_cpu = of("resources: {limits: {cpu: 1}},", ["64Mi", ""]);
    let whole = of("resources: {limits: {memory: 96Mi}},", ["64Mi", ""]);
    for (what, pod, size_limit, expected) in [
        ("nobody says", &plain, None, Some(1024)),
        ("one may use more", &one, None, Some(1024)),
        ("both are limited", &both, None, Some(128)),
        ("an init container is not", &helped, None, Some(1024)),
        ("the pod limits only CPU", &by_cpu, None, Some(1024)),
        ("the pod is limited", &whole, None, Some(96)),
        ("it is said", &both, Some(5), Some(5)),
        ("more is said", &both, Some(500), Some(128)),
        ("more than there is", &plain, Some(5000), Some(1024)),
        ("nothing is said", &plain, Some(0), Some(1024)),
    ] {
        let mut node = node();
        node.allocatable = amounts(&[("memory", "1Gi")]);
        let size = size(pod, &node, size_limit.map(|mib| mib << 20)).map(|bytes| bytes >> 20);
        assert_eq!(size, expected, "{what}");
    }
    let mut node = node();
    node.allocatable = amounts(&[]);
    assert_eq!(size(&plain, &node, None), None, "a node that does not know what it has");
}
