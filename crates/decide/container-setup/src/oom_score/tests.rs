//! Scores of all classes on a machine of 10 GiB.

use super::*;
use crate::testing::{node, pod, pod_with};

fn score_of(pod: &Pod, name: &str) -> i64 {
    let (_, _, container) =
        pod.spec.all_containers().find(|(_, _, it)| &*it.name == name).expect("a container");
    of_container(pod, container, &node())
}

fn burstable(request: &str) -> String {
    format!(
        "{{containers: [{{name: a, image: i, resources: {{requests: {{memory: {request}}}}}}}]}}"
    )
}

#[test]
fn classes() {
    let guaranteed = "{containers: [{name: a, image: i, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]}";
    for (spec, expected) in [
        (guaranteed.to_owned(), -997),
        ("{containers: [{name: a, image: i}]}".to_owned(), 1000),
        (burstable("1Gi"), 900),
        (burstable("5Gi"), 500),
        (burstable("1Mi"), 999),
        (burstable("1"), 999),
        (burstable("10Gi"), 3),
        (burstable("20Gi"), 3),
        (burstable("9.99Gi"), 3),
        ("{containers: [{name: a, image: i, resources: {requests: {cpu: 1}}}]}".to_owned(), 999),
    ] {
        assert_eq!(score_of(&pod(&spec), "a"), expected, "{spec}");
    }
    assert_eq!(
        of_container(
            &pod(&burstable("1Gi")),
            &pod(&burstable("1Gi")).spec.containers[0],
            &NodeSetupInputs::default()
        ),
        999
    );
}

#[test]
fn critical_pods_of_the_nodes_class_are_last() {
    let class = "priorityClassName: system-node-critical,";
    let is_static = "annotations: {kubernetes.io/config.source: file}";
    let spec = |more: &str| format!("{{{more} containers: [{{name: a, image: i}}]}}");
    for (metadata, more, expected) in [
        ("", format!("{class} priority: 2000001000,"), -997),
        ("", format!("{class} priority: 1999999999,"), 1000),
        ("", class.to_owned(), 1000),
        (is_static, class.to_owned(), -997),
        (is_static, "priorityClassName: system-cluster-critical,".to_owned(), 1000),
        (is_static, String::new(), 1000),
        ("annotations: {kubernetes.io/config.source: api}", class.to_owned(), 1000),
        ("annotations: {kubernetes.io/config.mirror: x}", class.to_owned(), -997),
    ] {
        let pod = pod_with(metadata, &spec(&more));
        assert_eq!(score_of(&pod, "a"), expected, "{metadata} {more}");
    }
}

#[test]
fn a_sidecar_has_at_most_the_oom_score_of_the_containers_it_serves() {
    let with = |side: &str, policy: &str| {
        pod(&format!(
            "{{initContainers: [{{name: s, image: i, {policy} resources: {{requests: {{memory: {side}}}}}}}], \
              containers: [{{name: a, image: i, resources: {{requests: {{memory: 2Gi}}}}}}, \
                           {{name: b, image: i, resources: {{requests: {{memory: 4Gi}}}}}}]}}"
        ))
    };
    let always = "restartPolicy: Always,";
    for (side, policy, expected) in
        [("1Gi", always, 800), ("3Gi", always, 700), ("1Gi", "", 900), ("2Gi", always, 800)]
    {
        assert_eq!(score_of(&with(side, policy), "s"), expected, "{side} {policy}");
    }
}

#[test]
fn pod_level_requests_beyond_the_containers_are_shared() {
    let spec = "{resources: {requests: {memory: 4Gi}}, containers: [{name: a, image: i, resources: {requests: {memory: 1Gi}}}, {name: b, image: i}]}";
    let shared = pod(spec);
    // (4 - 1) / 2 = 1.5 GiB for each on top.
    assert_eq!(score_of(&shared, "a"), 750);
    assert_eq!(score_of(&shared, "b"), 850);
    let mut gateless = node();
    gateless.gates.pod_level_resources = false;
    let container = &shared.spec.containers[0];
    assert_eq!(of_container(&shared, container, &gateless), 900);
    let sidecar = pod(
        "{resources: {requests: {memory: 4Gi}}, initContainers: [{name: s, image: i, restartPolicy: Always}], containers: [{name: a, image: i, resources: {requests: {memory: 2Gi}}}]}",
    );
    assert_eq!(score_of(&sidecar, "s"), 700);
    assert_eq!(score_of(&sidecar, "a"), 700);
    let only_cpu = pod(
        "{resources: {requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {memory: 1Gi}}}]}",
    );
    assert_eq!(score_of(&only_cpu, "a"), 900);
}
