//! Ephemeral containers, and the order of everything.

use crate::testing::{PlanCaseRow, check};

const EPHEMERAL_CONTAINERS: &[PlanCaseRow] = &[
    (
        "started once",
        "pod: Always app:web eph:debug\nseen: s0; web#0 running",
        "do: start debug#0 in s0\ndebug: waiting ContainerCreating r0",
    ),
    (
        "with its target",
        "pod: Always app:web eph:debug(target=web)\nseen: s0; web#0 running",
        "do: start debug#0 in s0 target=web0",
    ),
    (
        "the target is not there",
        "pod: Always app:web eph:debug(target=gone)\nseen: s0; web#0 running",
        "do: start debug#0 in s0",
    ),
    (
        "runs",
        "pod: Always app:web eph:debug\nseen: s0; web#0 running; debug#0 running",
        "do:\ndebug: running r0\nReady: True",
    ),
    (
        "never again",
        "pod: Always app:web eph:debug\nseen: s0; web#0 running; debug#0 exited 1",
        "do:\ndebug: ended 1 Error r0\nwhy: none",
    ),
    (
        "made and never started",
        "pod: Always app:web eph:debug\nseen: s0; web#0 running; debug#0 created",
        "do: remove debug0 keep-logs",
    ),
    (
        "before initialization is over",
        "pod: Always init:one app:web eph:debug\nseen: s0; one#0 running",
        "do: start debug#0 in s0",
    ),
    (
        "before init containers",
        "pod: Always init:one app:web eph:debug\nseen: s0",
        "do: start debug#0 in s0\nimages: debug#0 one#0",
    ),
    (
        "one that cannot start holds up nothing",
        "pod: Always app:web eph:debug\nseen: s0\nfacts: image debug 0 ErrImagePull 4 no",
        "do: start web#0 in s0\ndebug: ~waiting ErrImagePull",
    ),
    (
        "it does not keep a pod alive",
        "pod: Never app:web eph:debug\nseen: s0; web#0 exited 0; debug#0 running",
        "do: stop debug0 30 PodEnds\nphase: Succeeded",
    ),
    (
        "and is no part of readiness",
        "pod: Always app:web eph:debug\nseen: s0; web#0 running\nfacts: image debug 0 ErrImagePull 4 no",
        "Ready: True\nwhy: ~container debug cannot start",
    ),
];

#[test]
fn ephemeral_containers() {
    check(EPHEMERAL_CONTAINERS);
}

const STOPS_ARE_NOT_HELD_UP_BY_STARTS: &[PlanCaseRow] = &[
    (
        "a kill and a start",
        "pod: Always app:web app:log\nseen: s0; web#0 running changed",
        "do: stop web0 30 Changed; start log#0 in s0",
    ),
    (
        "two kills",
        "pod: Always app:web app:log\nseen: s0; web#0 running changed; log#0 running changed",
        "do: stop web0 30 Changed; stop log0 30 Changed",
    ),
    (
        "one start at a time",
        "pod: Always app:a app:b app:c\nseen: s0; a#0 exited 1; b#0 exited 1; c#0 exited 1",
        "do: start a#1 in s0",
    ),
    (
        "the second when the first is being started",
        "pod: Always app:a app:b\nseen: s0; a#0 exited 1; b#0 exited 1\nmemory: flight -1 start a 1",
        "do:",
    ),
    (
        "a stop in flight of the first does not hold up the second",
        "pod: Always app:a app:b\nseen: s0; a#0 running changed; b#0 exited 1\nmemory: flight -1 stop a a0 30",
        "do:",
    ),
];

#[test]
fn stops_are_not_held_up_by_starts() {
    check(STOPS_ARE_NOT_HELD_UP_BY_STARTS);
}
