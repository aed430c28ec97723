//! Which features are declared, and which pods need them.

use super::*;
use pod_model::pod::Container;
use pod_model::pod::container::ContainerRestartRule;

/// The defaults of Kubernetes 1.36.
const USUAL: FeatureGates = FeatureGates {
    declared: true,
    extend_web_sockets: true,
    resize_pod_level: true,
    resize_init: true,
    restart_all: true,
    users_on_host_network: false,
};

fn names(gates: &FeatureGates, runtime: bool) -> Vec<&'static str> {
    DeclaredFeatures::new(gates, runtime).names().collect()
}

#[test]
fn gates_and_runtime_make_the_list() {
    let usual = [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ];
    assert_eq!(names(&USUAL, true), usual, "the gate of the last one is off");
    let open = FeatureGates { users_on_host_network: true, ..USUAL };
    assert_eq!(names(&open, false), usual, "the runtime cannot");
    assert_eq!(names(&open, true).last(), Some(&"UserNamespacesHostNetworkSupport"));
    assert!(names(&FeatureGates { declared: false, ..USUAL }, true).is_empty());
    let mut closed = usual.to_vec();
    for (gates, lacking) in [
        (FeatureGates { extend_web_sockets: false, ..USUAL }, usual[0]),
        (FeatureGates { resize_pod_level: false, ..USUAL }, usual[1]),
        (FeatureGates { resize_init: false, ..USUAL }, usual[2]),
        (FeatureGates { restart_all: false, ..USUAL }, usual[3]),
    ] {
        closed.clone_from(&usual.to_vec());
        closed.retain(|name| *name != lacking);
        assert_eq!(names(&gates, true), closed, "{lacking}");
    }
}

fn pod(words: &str) -> Pod {
    let mut pod = Pod::default();
    let rule = |action| Container {
        restart_policy_rules: vec![ContainerRestartRule { action, ..Default::default() }],
        ..Container::default()
    };
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        match word {
            "all" => pod.spec.containers.push(rule(RestartRuleAction::RestartAllContainers)),
            "init-all" => {
                pod.spec.init_containers.push(rule(RestartRuleAction::RestartAllContainers));
            }
            "one" => pod.spec.containers.push(rule(RestartRuleAction::Restart)),
            "users" => pod.spec.host_users = Some(false),
            "network" => pod.spec.host_network = true,
            other => panic!("no word {other}"),
        }
    }
    pod
}

#[test]
fn a_pod_that_needs_an_undeclared_feature_is_rejected() {
    let none = FeatureGates { declared: true, ..FeatureGates::default() };
    let restart = "RestartAllContainersOnContainerExits";
    let users = "UserNamespacesHostNetworkSupport";
    for (words, lacking) in [
        ("", String::new()),
        ("one users", String::new()),
        ("network", String::new()),
        ("all", restart.to_owned()),
        ("init-all", restart.to_owned()),
        ("users network", users.to_owned()),
        ("all users network", format!("{restart}, {users}")),
    ] {
        let expected = (!lacking.is_empty())
            .then(|| format!("Pod requires node features that are not available: {lacking}"));
        assert_eq!(DeclaredFeatures::new(&none, true).rejection(&pod(words)), expected, "{words}");
        let silent = FeatureGates::default();
        assert_eq!(DeclaredFeatures::new(&silent, true).rejection(&pod(words)), None, "{words}");
    }
    let all = FeatureGates { users_on_host_network: true, ..USUAL };
    assert_eq!(DeclaredFeatures::new(&all, true).rejection(&pod("all users network")), None);
}
