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
        let found = after_exit(&pod.spec.containers[0], &pod.spec, *code, &Settings::default());
        assert_eq!(found, *expected, "{text} exits with {code}");
    }
}

#[test]
fn with_the_gates_off_only_the_pod_counts() {
    let off = Settings { restart_rules: false, ..Settings::default() };
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
    let no_all = Settings { restart_all: false, ..Settings::default() };
    let pod = pods::read("Always app:a(policy=Never,in3=RestartAllContainers)");
    let container = &pod.spec.containers[0];
    assert!(!after_exit(container, &pod.spec, 3, &no_all), "falls back to the policy");
    assert!(!restarts_all(container, 3, &no_all));
    assert!(!could_restart_all(&pod.spec, &no_all));
}

#[test]
fn which_containers_are_done_for_good_once_they_succeed() {
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
        assert_eq!(done(Settings::default()), expected, "{text}");
        let off = Settings { restart_rules: false, ..Settings::default() };
        assert_eq!(done(off), without, "{text}");
    }
}

#[test]
fn whether_a_container_comes_back_after_we_stopped_it() {
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
        let found = after_kill(&pod.spec.containers[0], &pod.spec, &Settings::default());
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn which_exits_restart_all() {
    for (text, code, expected) in [
        ("Always app:a(policy=Never,in3=RestartAllContainers)", 3, true),
        ("Always app:a(policy=Never,in3=RestartAllContainers)", 0, false),
        ("Always app:a(policy=Never,in3=Restart)", 3, false),
        ("Always app:a(policy=Never,in3=Restart,in3=RestartAllContainers)", 3, false),
        ("Always app:a(in3=RestartAllContainers)", 3, true),
    ] {
        let pod = pods::read(text);
        let found = restarts_all(&pod.spec.containers[0], code, &Settings::default());
        assert_eq!(found, expected, "{text} {code}");
    }
    for (text, expected) in [
        ("Always app:a", false),
        ("Always app:a(policy=Never,in3=Restart)", false),
        ("Always app:a(policy=Never,in3=RestartAllContainers)", true),
        ("Always app:b init:a(policy=Never,in3=RestartAllContainers)", true),
    ] {
        let pod = pods::read(text);
        assert_eq!(could_restart_all(&pod.spec, &Settings::default()), expected, "{text}");
    }
}
