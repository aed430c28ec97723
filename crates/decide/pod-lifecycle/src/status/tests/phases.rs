//! Phases.

use crate::testing::{PlanCaseRow, check, follows};

/// (pod, what is seen, phase)
const PHASES: &[(&str, &str, &str)] = &[
    ("Always app:a", "s0", "Pending"),
    ("Always app:a", "s0; a#0 created", "Pending"),
    ("Always app:a", "s0; a#0 running", "Running"),
    ("Always app:a", "s0; a#0 exited 0", "Running"),
    ("Always app:a", "s0; a#0 exited 1", "Running"),
    ("Always app:a app:b", "s0; a#0 running", "Pending"),
    ("Always app:a app:b", "s0; a#0 running; b#0 exited 1", "Running"),
    ("Always app:a app:b", "s0; a#0 exited 0; b#0 exited 1", "Running"),
    ("Always app:a app:b", "s0; a#0 exited 0", "Pending"),
    ("OnFailure app:a", "s0; a#0 exited 0", "Succeeded"),
    ("OnFailure app:a", "s0; a#0 exited 1", "Running"),
    ("OnFailure app:a app:b", "s0; a#0 exited 0; b#0 running", "Running"),
    ("OnFailure app:a app:b", "s0; a#0 exited 0; b#0 exited 0", "Succeeded"),
    ("OnFailure app:a app:b", "s0; a#0 exited 0; b#0 exited 7", "Running"),
    ("Never app:a", "s0; a#0 exited 0", "Succeeded"),
    ("Never app:a", "s0; a#0 exited 1", "Failed"),
    ("Never app:a app:b", "s0; a#0 exited 1; b#0 running", "Running"),
    ("Never app:a app:b", "s0; a#0 exited 1; b#0 exited 0", "Failed"),
    ("Never app:a app:b", "s0; a#0 exited 1", "Pending"),
    ("Always app:a(policy=Never)", "s0; a#0 exited 1", "Failed"),
    ("Always app:a(policy=Never) app:b", "s0; a#0 exited 1; b#0 running", "Running"),
    ("Always app:a(policy=Never) app:b", "s0; a#0 exited 1; b#0 exited 0", "Running"),
    ("Never app:a(policy=Never,in3=Restart)", "s0; a#0 exited 3", "Running"),
    // Init containers.
    ("Always init:i app:a", "s0", "Pending"),
    ("Always init:i app:a", "s0; i#0 running", "Pending"),
    ("Always init:i app:a", "s0; i#0 exited 0", "Pending"),
    ("Always init:i app:a", "s0; i#0 exited 1", "Pending"),
    ("Never init:i app:a", "s0; i#0 exited 1", "Failed"),
    ("OnFailure init:i app:a", "s0; i#0 exited 1", "Pending"),
    ("Never init:i(policy=OnFailure) app:a", "s0; i#0 exited 1", "Pending"),
    ("Always init:i(policy=Never) app:a", "s0; i#0 exited 1", "Failed"),
    ("Always init:i app:a", "s0; i#0 exited 0; a#0 running", "Running"),
    ("Always init:i app:a", "s0; a#0 running", "Running"),
    ("Never init:i app:a", "s0; i#0 exited 0; a#0 exited 0", "Succeeded"),
    // It begins again in a new sandbox, whatever ran in the old one.
    ("Always init:i app:a", "s0 dead; a#0 exited 1 in=s0; s1; i#0 running", "Pending"),
    // Sidecars.
    ("Always side:s app:a", "s0; s#0 running", "Pending"),
    ("Always side:s app:a", "s0; s#0 running; a#0 running", "Running"),
    ("Always side:s(startup) app:a", "s0; s#0 running", "Pending"),
    // The sidecar is restarting, but the pod has begun.
    ("Always side:s(startup) app:a", "s0; s#1 running; a#0 running", "Running"),
    ("Always side:s app:a", "s0; s#0 exited 1; a#0 running", "Running"),
    ("Never side:s app:a", "s0; s#0 running; a#0 exited 0", "Running"),
    ("Never side:s app:a", "s0; s#0 exited 137; a#0 exited 0", "Succeeded"),
    ("Never side:s app:a", "s0; s#0 exited 0; a#0 exited 1", "Failed"),
    ("OnFailure side:s app:a", "s0; s#0 exited 1; a#0 exited 0", "Succeeded"),
    ("Never side:s app:a", "s0; a#0 exited 0", "Pending"),
    // Containers of an older sandbox do not show that the pod has begun in this one.
    ("Always side:s(startup) app:a", "s0 dead; a#0 exited 1 in=s0; s1; s#0 running", "Pending"),
];

#[test]
fn phases_follow_the_observed_containers() {
    for (pod, seen, phase) in PHASES {
        let found = follows(&format!("pod: {pod}\nseen: {seen}"));
        assert_eq!(found["phase"], *phase, "{pod} | {seen}");
    }
}

const PHASES_OF_PODS_THAT_END: &[PlanCaseRow] = &[
    ("still running", "pod: Always app:a\nseen: s0; a#0 running\nwish: deleted", "phase: Running"),
    (
        "stopped well",
        "pod: Always app:a\nseen: s0; a#0 exited 0\nwish: deleted",
        "phase: Succeeded",
    ),
    (
        "not before every stop is over",
        "pod: Always app:a\nseen: s0; a#0 exited 0\nmemory: flight -1 stop a a0 30\nwish: deleted",
        "phase: Running",
    ),
    (
        "stopped badly",
        "pod: Always app:a\nseen: s0; a#0 exited 137\nwish: deleted",
        "phase: Failed",
    ),
    (
        "one of each",
        "pod: Always app:a app:b\nseen: s0; a#0 exited 0; b#0 exited 143\nwish: deleted",
        "phase: Failed",
    ),
    (
        "never begun",
        "pod: Always app:a\nwish: deleted",
        "phase: Failed\na: ended 137 ContainerStatusUnknown The container could not be located when the pod was terminated r0",
    ),
    (
        "a static pod gets no phase of the end",
        "pod: Always static app:a\nseen: s0; a#0 exited 137\nwish: removed",
        "phase: Running",
    ),
    ("nor when it never began", "pod: Always static app:a\nwish: removed", "phase: Pending"),
    (
        "but its own",
        "pod: Never static app:a\nseen: s0; a#0 exited 0\nwish: removed",
        "phase: Succeeded",
    ),
    (
        "not before the last has stopped",
        "pod: Always app:a app:b\nseen: s0; a#0 exited 0; b#0 running\nwish: deleted",
        "phase: Running",
    ),
    (
        "initialization was not over",
        "pod: Always init:i app:a\nseen: s0; i#0 exited 137\nwish: deleted",
        "phase: Failed\na: waiting PodInitializing r0\ni: ended 137 Error r0",
    ),
    (
        "nothing was begun: the first counts as lost",
        "pod: Always init:i init:j app:a\nwish: deleted",
        "i: ended 137 ContainerStatusUnknown The container could not be located when the pod was terminated r0\nj: waiting PodInitializing r0",
    ),
    (
        "it waits, and may not be started again",
        "pod: Never app:a\nseen: s0\nmemory: was a waiting 1; before a 0 0",
        "phase: Failed",
    ),
    (
        "init containers that were not begun stay as they are",
        "pod: Always init:i init:j app:a\nseen: s0; i#0 exited 137\nwish: deleted",
        "j: waiting PodInitializing r0",
    ),
    (
        "one that waits to begin again was begun",
        "pod: Always init:i init:j app:a\nseen: s0; i#0 exited 0\nmemory: was j waiting 1; before j 0 1\nwish: deleted",
        "j: ended 137 ContainerStatusUnknown The container could not be located when the pod was terminated r1\na: waiting PodInitializing r0",
    ),
    (
        "one container that has run shows that initialization was over once",
        "pod: Always init:i app:a app:b\nseen: s0 dead; a#0 exited 0 in=s0; s1; i#1 exited 137\nwish: deleted",
        "b: ended 137 ContainerStatusUnknown The container could not be located when the pod was terminated r0",
    ),
    (
        "a sidecar that has ended does not show it",
        "pod: Always side:s app:a\nseen: s0; s#0 exited 0\nwish: deleted",
        "a: waiting PodInitializing r0\ns: ended 0 Completed r0",
    ),
    (
        "a terminal phase is never left",
        "pod: Always app:a\nseen: s0; a#0 running\nmemory: verdict Succeeded",
        "phase: Succeeded",
    ),
    (
        "with its reason",
        "pod: Always app:a\nseen: s0\nmemory: verdict Failed Evicted",
        "phase: Failed Evicted",
    ),
    (
        "not by a deadline either",
        "pod: Always deadline=1 app:a\nseen: s0; a#0 exited 0\nmemory: verdict Succeeded",
        "phase: Succeeded",
    ),
    (
        "what succeeded in time has",
        "pod: Never deadline=1 app:a\nseen: s0; a#0 exited 0",
        "phase: Succeeded",
    ),
    (
        "an eviction goes before a rejection",
        "pod: Always app:a\nfacts: rejected X y\nwish: evicted",
        "phase: Failed Evicted the node was low on memory",
    ),
];

#[test]
fn phases_of_pods_that_end() {
    check(PHASES_OF_PODS_THAT_END);
}
