//! Policies and rules against exit codes.

use super::*;
use crate::testing::pods;

/// (pod, exit code, comes back)
const AFTER_EXIT: &[(&str, i32, bool)] = &[
    ("Always app:a", 0, true),
    ("Always app:a", 1, true),
    ("OnFailure app:a", 0, false),
    ("OnFailure app:a", 1, true),
    ("OnFailure app:a", 137, true),
    ("Never app:a", 0, false),
    ("Never app:a", 1, false),
    // The container's own policy takes precedence.
    ("Never app:a(policy=Always)", 0, true),
    ("Never app:a(policy=OnFailure)", 0, false),
    ("Never app:a(policy=OnFailure)", 2, true),
    ("Always app:a(policy=Never)", 1, false),
    ("Always app:a(policy=OnFailure)", 0, false),
    // Rules take precedence over both.
    ("Never app:a(policy=Never,in42=Restart)", 42, true),
    ("Never app:a(policy=Never,in42=Restart)", 41, false),
    ("Never app:a(policy=Never,in42=Restart)", 0, false),
    ("Never app:a(policy=Never,in42+43=Restart)", 43, true),
    ("Never app:a(policy=Never,notin42=Restart)", 42, false),
    ("Never app:a(policy=Never,notin42=Restart)", 1, true),
    ("Never app:a(policy=Never,notin42=Restart)", 0, true),
    ("Always app:a(policy=OnFailure,in0=Restart)", 0, true),
    ("Never app:a(policy=Never,in3=RestartAllContainers)", 3, true),
    ("Never app:a(policy=Never,in3=RestartAllContainers)", 4, false),
    // The first rule that matches counts, and one without codes never does.
    ("Never app:a(policy=Never,in1=Restart,in1=RestartAllContainers)", 1, true),
    ("Never app:a(policy=Never,in=Restart)", 1, false),
    // Rules without a policy of the container's own are ignored.
    ("Never app:a(in42=Restart)", 42, false),
    ("Always app:a(policy=Sometimes)", 1, true),
    ("Never app:a(policy=Sometimes)", 1, false),
];

#[test]
fn policies_and_rules_after_an_exit() {
    for (text, code, expected) in AFTER_EXIT {
        let pod = pods::read(text);
        let found =
            after_exit(&pod.spec.containers[0], &pod.spec, *code, &PodLifecycleSettings::default());
        assert_eq!(found, *expected, "{text} exits with {code}");
    }
}

#[test]
fn with_the_gates_off_only_the_pod_counts() {
    let off = PodLifecycleSettings { restart_rules: false, ..PodLifecycleSettings::default() };
    for (text, code, expected) in [
        ("Always app:a(policy=Never)", 1, true),
        ("Never app:a(policy=Always)", 1, false),
        ("Never app:a(policy=Never,in1=Restart)", 1, false),
        ("OnFailure app:a(policy=Always)", 0, false),
    ] {
        let pod = pods::read(text);
        let container = &pod.spec.containers[0];
        assert_eq!(after_exit(container, &pod.spec, code, &off), expected, "{text} {code}");
        assert_eq!(
            after_kill(container, &pod.spec, &off),
            pod.spec.restart_policy != RestartPolicy::Never,
            "{text}"
        );
    }
    let no_all = PodLifecycleSettings { restart_all: false, ..PodLifecycleSettings::default() };
    let pod = pods::read("Always app:a(policy=Never,in3=RestartAllContainers)");
    let container = &pod.spec.containers[0];
    assert!(!after_exit(container, &pod.spec, 3, &no_all), "falls back to the policy");
    assert!(!restarts_all(container, 3, &no_all));
    assert!(!could_restart_all(&pod.spec, &no_all));
}

#[test]
fn a_container_that_must_succeed_once_is_not_restarted() {
    // (pod, with the gate, without it)
    for (text, expected, without) in [
        ("Always app:a", false, false),
        ("OnFailure app:a", true, true),
        ("Never app:a", false, false),
        ("Always app:a(policy=OnFailure)", true, false),
        ("OnFailure app:a(policy=Always)", false, true),
        ("OnFailure app:a(policy=Never)", false, true),
    ] {
        let pod = pods::read(text);
        let done = |settings| runs_until_success(&pod.spec.containers[0], &pod.spec, &settings);
        assert_eq!(done(PodLifecycleSettings::default()), expected, "{text}");
        let off = PodLifecycleSettings { restart_rules: false, ..PodLifecycleSettings::default() };
        assert_eq!(done(off), without, "{text}");
    }
}

#[test]
fn policy_decides_whether_a_stopped_container_restarts() {
    for (text, expected) in [
        ("Always app:a", true),
        ("OnFailure app:a", true),
        ("Never app:a", false),
        ("Never app:a(policy=Always)", true),
        ("Never app:a(policy=OnFailure)", true),
        ("Always app:a(policy=Never)", false),
        // Rules are not applied: there is no exit code yet.
        ("Always app:a(policy=Never,notin0=Restart)", false),
    ] {
        let pod = pods::read(text);
        let found =
            after_kill(&pod.spec.containers[0], &pod.spec, &PodLifecycleSettings::default());
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn exit_codes_that_restart_all_containers() {
    for (text, code, expected) in [
        ("Always app:a(policy=Never,in3=RestartAllContainers)", 3, true),
        ("Always app:a(policy=Never,in3=RestartAllContainers)", 0, false),
        ("Always app:a(policy=Never,in3=Restart)", 3, false),
        ("Always app:a(policy=Never,in3=Restart,in3=RestartAllContainers)", 3, false),
        ("Always app:a(in3=RestartAllContainers)", 3, true),
    ] {
        let pod = pods::read(text);
        let found = restarts_all(&pod.spec.containers[0], code, &PodLifecycleSettings::default());
        assert_eq!(found, expected, "{text} {code}");
    }
    for (text, expected) in [
        ("Always app:a", false),
        ("Always app:a(policy=Never,in3=Restart)", false),
        ("Always app:a(policy=Never,in3=RestartAllContainers)", true),
        ("Always app:b init:a(policy=Never,in3=RestartAllContainers)", true),
    ] {
        let pod = pods::read(text);
        assert_eq!(
            could_restart_all(&pod.spec, &PodLifecycleSettings::default()),
            expected,
            "{text}"
        );
    }
}
