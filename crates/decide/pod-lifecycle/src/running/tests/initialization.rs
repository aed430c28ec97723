//! Init containers and sidecars.

use crate::testing::{PlanCaseRow, check};

const INIT_CONTAINERS_RUN_ONE_AFTER_THE_OTHER: &[PlanCaseRow] = &[
    (
        "the first",
        "pod: Always init:one init:two app:web\nseen: s0",
        "do: start one#0 in s0\nimages: one#0\nphase: Pending\nInitialized: False ContainersNotInitialized containers with incomplete status: [one two]\nweb: waiting PodInitializing r0",
    ),
    (
        "it runs",
        "pod: Always init:one init:two app:web\nseen: s0; one#0 running",
        "do:\nwhy: init container one is still running\none: running r0 started",
    ),
    (
        "it succeeded",
        "pod: Always init:one init:two app:web\nseen: s0; one#0 exited 0",
        "do: start two#0 in s0\none: ended 0 Completed r0 ready\nInitialized: False ContainersNotInitialized containers with incomplete status: [two]",
    ),
    (
        "it failed",
        "pod: Always init:one init:two app:web\nseen: s0; one#0 exited 1",
        "do: start one#1 in s0\nphase: Pending",
    ),
    (
        "it failed, OnFailure",
        "pod: OnFailure init:one app:web\nseen: s0; one#0 exited 1",
        "do: start one#1 in s0",
    ),
    (
        "it failed for good",
        "pod: Never init:one init:two app:web\nseen: s0; one#0 exited 1",
        "do: stop-sandbox s0\nphase: Failed\nstage: Ending",
    ),
    (
        "it failed for good by its own policy",
        "pod: Always init:one(policy=Never) app:web\nseen: s0; one#0 exited 1",
        "phase: Failed",
    ),
    (
        "its own policy lets it go on",
        "pod: Never init:one(policy=OnFailure) app:web\nseen: s0; one#0 exited 1",
        "do: start one#1 in s0",
    ),
    (
        "a rule lets it go on",
        "pod: Never init:one(policy=Never,in9=Restart) app:web\nseen: s0; one#0 exited 9",
        "do: start one#1 in s0\nphase: Pending",
    ),
    (
        "both succeeded",
        "pod: Always init:one init:two app:web\nseen: s0; one#0 exited 0; two#0 exited 0",
        "do: start web#0 in s0\nInitialized: True",
    ),
    (
        "the record of the first is gone",
        "pod: Always init:one init:two app:web\nseen: s0; two#0 exited 0",
        "do: start web#0 in s0",
    ),
    (
        "both are gone and the pod runs",
        "pod: Always init:one init:two app:web\nseen: s0; web#0 running",
        "do:\none: ~ended 0 Completed Unable to get init container status\nInitialized: True\nphase: Running",
    ),
    (
        "both are gone, and the regular one has exited",
        "pod: Always init:one app:web\nseen: s0; web#0 exited 1",
        "do: start one#0 in s0",
    ),
    (
        "one was made and never started",
        "pod: Always init:one app:web\nseen: s0; one#0 created",
        "do: remove one0 keep-logs",
    ),
    (
        "its state is unknown",
        "pod: Always init:one app:web\nseen: s0; one#0 unknown",
        "do: stop one0 30 StateUnknown\nevents: ~Init container is in \"unknown\" state, try killing it before restart",
    ),
    (
        "its state is unknown, Never",
        "pod: Never init:one app:web\nseen: s0; one#0 unknown",
        "do: stop one0 30 PodEnds",
    ),
    (
        "one that failed is of no interest once the pod has begun",
        "pod: Always init:one app:web\nseen: s0; one#0 exited 1; web#0 running",
        "do:",
    ),
    (
        "nor once a later one has begun",
        "pod: Always init:one init:two app:web\nseen: s0; one#0 exited 1; two#0 running",
        "do:",
    ),
    (
        "a changed init container that runs is left alone",
        "pod: Always init:one app:web\nseen: s0; one#0 running changed",
        "do:",
    ),
    (
        "only the newest dead one is kept",
        "pod: Always init:one app:web\nseen: s0; one#0 exited 1; one#1 exited 0",
        "do: remove one0; start web#0 in s0",
    ),
    (
        "OnFailure after success of all",
        "pod: OnFailure init:one app:web\nseen: s0; one#0 exited 0; web#0 exited 0",
        "phase: Succeeded\nInitialized: True PodCompleted",
    ),
];

#[test]
fn init_containers_run_one_after_the_other() {
    check(INIT_CONTAINERS_RUN_ONE_AFTER_THE_OTHER);
}

const SIDECARS_START_IN_ORDER: &[PlanCaseRow] = &[
    (
        "the first",
        "pod: Always side:a side:b app:web\nseen: s0",
        "do: start a#0 in s0\nimages: a#0",
    ),
    (
        "it runs, the next",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 running",
        "do: start b#0 in s0\na: running r0 started ready",
    ),
    (
        "its startup probe has not succeeded",
        "pod: Always side:a(startup) side:b app:web\nseen: s0; a#0 running",
        "do:\na: running r0\nprobes: a0:Startup\nwhy: the startup probe of container a has not succeeded yet\nphase: Pending",
    ),
    (
        "it has",
        "pod: Always side:a(startup) side:b app:web\nseen: s0; a#0 running\nmemory: startup a a0",
        "do: start b#0 in s0",
    ),
    (
        "of the container before",
        "pod: Always side:a(startup) side:b app:web\nseen: s0; a#1 running\nmemory: startup a a0",
        "do:",
    ),
    (
        "it failed",
        "pod: Always side:a(startup) app:web\nseen: s0; a#0 running\nmemory: failed a a0 startup",
        "do: stop a0 30 StartupProbe\nevents: ~Init container a failed startup probe",
    ),
    (
        "it failed with a grace of its own",
        "pod: Always side:a(startup=3/4) app:web\nseen: s0; a#0 running\nmemory: failed a a0 startup",
        "do: stop a0 4 StartupProbe",
    ),
    (
        "its liveness failed",
        "pod: Always side:a(live) app:web\nseen: s0; a#0 running; web#0 running\nmemory: failed a a0 liveness",
        "do: stop a0 30 LivenessProbe",
    ),
    (
        "which does not hold up the next",
        "pod: Always side:a(live) side:b app:web\nseen: s0; a#0 running\nmemory: failed a a0 liveness",
        "do: stop a0 30 LivenessProbe; start b#0 in s0",
    ),
    (
        "readiness does not hold up the next",
        "pod: Always side:a(ready) side:b app:web\nseen: s0; a#0 running",
        "do: start b#0 in s0",
    ),
    (
        "it exited",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 exited 0",
        "do: start a#1 in s0",
    ),
    (
        "it exited, Never",
        "pod: Never side:a app:web\nseen: s0; a#0 exited 1; web#0 running",
        "do: start a#1 in s0\nphase: Running",
    ),
    (
        "both started, the regular ones",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 running; b#0 running",
        "do: start web#0 in s0\nInitialized: True",
    ),
    (
        "a sidecar and an init container",
        "pod: Always side:a init:one app:web\nseen: s0; a#0 running",
        "do: start one#0 in s0",
    ),
    (
        "one that exited after that",
        "pod: Always side:a init:one app:web\nseen: s0; a#0 exited 1; one#0 exited 0; web#0 running",
        "do: start a#1 in s0\nphase: Running",
    ),
    (
        "the next is started once",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 running; b#0 exited 1",
        "do: start b#1 in s0\nimages: b#1",
    ),
    (
        "two that exited after that",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 exited 1; b#0 exited 1; web#0 running",
        "do: start a#1 in s0\nimages: a#1 b#1",
    ),
    (
        "one whose record is gone",
        "pod: Always side:a app:web\nseen: s0; web#0 running",
        "do: start a#0 in s0",
    ),
    (
        "one in a crash loop does not hold up the others",
        "pod: Always side:a side:b app:web\nseen: s0; a#1 exited 1 done=-1; b#0 exited 0 done=-1; web#0 running\nmemory: backoff a 10 -5",
        "do: start b#1 in s0",
    ),
    (
        "it changed",
        "pod: Always side:a app:web\nseen: s0; a#0 running changed; web#0 running",
        "do: stop a0 30 Changed\nevents: ~Init container a definition changed",
    ),
    (
        "it changed before it started",
        "pod: Always side:a(startup) app:web\nseen: s0; a#0 running changed",
        "do:",
    ),
    (
        "unknown state",
        "pod: Never side:a app:web\nseen: s0; a#0 unknown; web#0 running",
        "do: stop a0 30 StateUnknown",
    ),
    (
        "its postStart hook runs",
        "pod: Always side:a(post) app:web\nseen: s0; a#0 running made=0\nmemory: flight -1 start a 0",
        "do:\na: waiting PodInitializing r0",
    ),
    (
        "its postStart hook failed",
        "pod: Always side:a(post) app:web\nseen: s0; a#0 running\nmemory: hookfailed a a0",
        "do: stop a0 30 FailedPostStartHook\na: waiting PodInitializing r0\nphase: Pending\nInitialized: False ContainersNotInitialized containers with incomplete status: [a]",
    ),
    (
        "which holds up the next until it is gone",
        "pod: Always side:a(post) side:b app:web\nseen: s0; a#0 running\nmemory: hookfailed a a0; stopping a a0 28; flight -2 stop a a0 30",
        "do:\nimages: ",
    ),
    (
        "and after that, while it waits for another try",
        "pod: Always side:a(post) app:web\nseen: s0; a#0 exited 137 done=-1\nmemory: hookfailed a a0; trouble a PostStartHookError none; backoff a 10 -1",
        "do:\nwake: 9",
    ),
    (
        "a failed hook does not wait for the startup probe",
        "pod: Always side:a(post,startup) app:web\nseen: s0; a#0 running\nmemory: hookfailed a a0",
        "do: stop a0 30 FailedPostStartHook\nprobes: ",
    ),
    (
        "it goes before a changed definition",
        "pod: Always side:a(post) app:web\nseen: s0; a#0 running changed; web#0 running\nmemory: hookfailed a a0",
        "do: stop a0 30 FailedPostStartHook\nReady: False ContainersNotReady containers with unready status: [a]",
    ),
    (
        "it counts for readiness",
        "pod: Always side:a(ready) app:web\nseen: s0; a#0 running; web#0 running",
        "Ready: False ContainersNotReady containers with unready status: [a]",
    ),
];

#[test]
fn sidecars_start_in_order() {
    check(SIDECARS_START_IN_ORDER);
}
