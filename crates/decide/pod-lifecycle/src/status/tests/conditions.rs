//! Conditions.

use crate::testing::{PlanCaseRow, check};

const CONDITIONS_AND_THEIR_REASONS: &[PlanCaseRow] = &[
    (
        "nothing yet",
        "pod: Always init:i app:a\nmemory: new",
        "
            PodScheduled: True
            PodReadyToStartContainers: False
            Initialized: False ContainersNotInitialized containers with incomplete status: [i]
            Ready: False ContainersNotReady containers with unready status: [a]
            ContainersReady: False ContainersNotReady containers with unready status: [a]",
    ),
    (
        "all names, in the order of the specification",
        "pod: Always side:s app:b app:a\nseen: s0",
        "Ready: False ContainersNotReady containers with unready status: [s b a]",
    ),
    (
        "ready",
        "pod: Always app:a\nseen: s0; a#0 running",
        "Ready: True\nContainersReady: True\nInitialized: True\nPodReadyToStartContainers: True",
    ),
    (
        "succeeded",
        "pod: Never app:a\nseen: s0; a#0 exited 0",
        "Ready: False PodCompleted\nContainersReady: False PodCompleted\nInitialized: True PodCompleted",
    ),
    (
        "failed",
        "pod: Never app:a\nseen: s0; a#0 exited 1",
        "Ready: False PodFailed\nContainersReady: False PodFailed\nInitialized: True",
    ),
    (
        "a sidecar has started",
        "pod: Always side:s init:i app:a\nseen: s0; s#0 running",
        "Initialized: False ContainersNotInitialized containers with incomplete status: [i]",
    ),
    (
        "a sidecar counts once it has started, ready or not",
        "pod: Always side:s(ready) init:i app:a\nseen: s0; s#0 running",
        "Initialized: False ContainersNotInitialized containers with incomplete status: [i]",
    ),
    (
        "a sidecar restarts later",
        "pod: Always side:s app:a\nseen: s0; s#0 exited 1; a#0 running",
        "Initialized: True",
    ),
    (
        "restart rules: once initialized, always",
        "pod: Always init:i app:a\nseen: s0; i#0 running\nmemory: condition Initialized True -9",
        "Initialized: True\nInitialized.since: -9",
    ),
    (
        "not with the gate off",
        "pod: Always init:i app:a\nseen: s0; i#0 running\nmemory: condition Initialized True -9\nfacts: norestartall",
        "Initialized: ~False ContainersNotInitialized",
    ),
    (
        "restart rules: all restarting, of a pod that succeeded",
        "pod: Never app:a(policy=Never,in3=RestartAllContainers)\nseen: s0; a#0 exited 0",
        "AllContainersRestarting: False PodCompleted",
    ),
    (
        "and of one that failed",
        "pod: Never app:a(policy=Never,in3=RestartAllContainers)\nseen: s0; a#0 exited 1",
        "AllContainersRestarting: False PodFailed",
    ),
    (
        "a gate that nobody has set",
        "pod: Always gate=example.com/ok app:a\nseen: s0; a#0 running",
        "Ready: False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/ok\" does not exist.\nContainersReady: True\nwhy: ~its readiness gates are not met",
    ),
    (
        "a gate that is closed",
        "pod: Always gate=ok app:a\nseen: s0; a#0 running\nfacts: gate ok False",
        "Ready: False ReadinessGatesNotReady the status of pod readiness gate \"ok\" is not \"True\", but False\nok: False",
    ),
    (
        "two gates",
        "pod: Always gate=x gate=y app:a\nseen: s0; a#0 running",
        "Ready: ~does not exist., corresponding condition of pod readiness gate \"y\"",
    ),
    (
        "a gate that is open",
        "pod: Always gate=ok app:a\nseen: s0; a#0 running\nfacts: gate ok True",
        "Ready: True\nok: True",
    ),
    (
        "containers go before gates",
        "pod: Always gate=ok app:a\nseen: s0",
        "Ready: ~False ContainersNotReady",
    ),
    (
        "a foreign condition cannot stand for ours",
        "pod: Always app:a\nseen: s0; a#0 running\nfacts: gate Ready False",
        "Ready: True",
    ),
    (
        "no disruption",
        "pod: Always app:a\nseen: s0; a#0 running\nwish: deleted",
        "DisruptionTarget:",
    ),
];

#[test]
fn conditions_and_their_reasons() {
    check(CONDITIONS_AND_THEIR_REASONS);
}

const TIMES_MOVE_ONLY_WITH_THE_STATUS: &[PlanCaseRow] = &[
    ("new", "pod: Always app:a\nseen: s0; a#0 running", "Ready.since: 0"),
    (
        "the same as before",
        "pod: Always app:a\nseen: s0; a#0 running\nmemory: condition Ready True -70",
        "Ready.since: -70",
    ),
    (
        "another than before",
        "pod: Always app:a\nseen: s0; a#0 running\nmemory: condition Ready False -70",
        "Ready.since: 0",
    ),
    (
        "another reason is not another status",
        "pod: Never app:a\nseen: s0; a#0 exited 1\nmemory: condition Ready False -70",
        "Ready: False PodFailed\nReady.since: -70",
    ),
    (
        "each by itself",
        "pod: Always app:a\nseen: s0; a#0 running\nmemory: condition Ready True -70; condition PodScheduled True -90",
        "PodScheduled.since: -90\nContainersReady.since: 0",
    ),
];

#[test]
fn times_move_only_with_the_status() {
    check(TIMES_MOVE_ONLY_WITH_THE_STATUS);
}

#[test]
fn a_reported_time_stays_while_the_status_does() {
    use crate::input::PodInput;
    use crate::testing::{PlanCase, at};

    let mut case = PlanCase::read("pod: Always app:a(ready)\nseen: s0; a#0 running");
    for seconds in [0, 5, 9] {
        case.now = at(seconds);
        let plan = case.plan();
        for condition in &plan.status.conditions {
            let since = condition.last_transition_time;
            assert_eq!(since, Some(crate::time::timestamp(at(0))), "{}", condition.kind);
        }
        let desired = case.desired.clone();
        case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
    }
}

const GENERATIONS_AND_START: &[PlanCaseRow] = &[
    ("observed", "pod: Always generation=4 app:a", "generation: 4"),
    ("the start stays", "pod: Always app:a\nmemory: since -77", "started: -77"),
    ("the start is now", "pod: Always app:a\nmemory: new", "started: 0"),
    (
        "a deadline counts from a start that there was",
        "pod: Always deadline=1 app:a\nmemory: new",
        "phase: Pending",
    ),
];

#[test]
fn generations_and_start() {
    check(GENERATIONS_AND_START);
}
