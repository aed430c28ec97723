//! All containers start again because one exited with a code whose rule says so.

use crate::testing::{PlanCaseRow, check, check_of};

const POD: &str = "Always init:one app:web(policy=Never,in3=RestartAllContainers) app:log(pre)";

const STEPS: &[PlanCaseRow] = &[
    (
        "the others are stopped without grace or hook",
        "seen: s0; one#0 exited 0; web#0 exited 3; log#0 running",
        "do: remove one0 keep-logs; stop log0 0 RestartAllContainers\nAllContainersRestarting: True RestartAllContainersStarted container exited with restart policy rule\nphase: Running\nevents: Normal Killing spec.containers{log} killing",
    ),
    ("then removed", "seen: s0; web#0 exited 3; log#0 exited 137", "do: remove log0 keep-logs"),
    (
        "all of one name, one after the other",
        "seen: s0; web#0 exited 3; log#0 exited 1; log#1 exited 137",
        "do: remove log1 keep-logs",
    ),
    (
        "the one that set it off goes last",
        "seen: s0; web#0 exited 3\nmemory: condition AllContainersRestarting True -3",
        "do: remove web0 keep-logs",
    ),
    (
        "a start in flight is waited for",
        "seen: s0; web#0 exited 3\nmemory: flight -1 start log 0",
        "do:",
    ),
    (
        "cleared: all begins anew",
        "seen: s0\nmemory: condition AllContainersRestarting True -3; was web exited 0 3; was log running 0; was one exited 0 0",
        "do: start one#1 in s0\nAllContainersRestarting: False\nweb: waiting RestartingAllContainers The container is removed because RestartAllContainers in place r1\nweb.last: ended 137 RestartingAllContainers The container is removed because RestartAllContainers in place\nlog: ~waiting RestartingAllContainers",
    ),
    (
        "it does not end in between",
        "seen: s0; web#0 exited 3\nmemory: condition AllContainersRestarting True -3; was log waiting 1; before log 0 0",
        "stage: Running",
    ),
    (
        "an interrupted one goes on by its condition",
        "seen: s0; log#0 running\nmemory: condition AllContainersRestarting True -3",
        "do: stop log0 0 RestartAllContainers",
    ),
    (
        "another exit code",
        "seen: s0; one#0 exited 0; web#0 exited 4; log#0 running",
        "do:\nAllContainersRestarting: False",
    ),
    (
        "the gate is off",
        "seen: s0; one#0 exited 0; web#0 exited 3; log#0 running\nfacts: norestartall",
        "do:\nAllContainersRestarting:",
    ),
    (
        "the gate was on when it began",
        "seen: s0; one#0 exited 0; web#0 running; log#0 running\nmemory: condition AllContainersRestarting True -3\nfacts: norestartall",
        "do:",
    ),
    (
        "a pod that ends does not restart",
        "seen: s0; one#0 exited 0; web#0 exited 3; log#0 running\nwish: deleted",
        "do: stop log0 30 PodEnds with-hook",
    ),
    (
        "it cannot be stopped",
        "seen: s0; web#0 exited 3; log#0 running\nmemory: failure log 5",
        "do:\nwake: 5",
    ),
    (
        "it was initialized and stays so",
        "seen: s0; web#0 exited 3\nmemory: condition Initialized True -50; condition AllContainersRestarting True -3",
        "Initialized: True\nInitialized.since: -50",
    ),
];

#[test]
fn restart_all_stops_removes_and_starts_all_containers() {
    check_of(POD, STEPS);
}

const OTHER_PODS: &[PlanCaseRow] = &[
    (
        "no rule, no condition",
        "pod: Always app:web\nseen: s0; web#0 running",
        "AllContainersRestarting:",
    ),
    (
        "an init container sets it off",
        "pod: Always init:one(policy=Never,in3=RestartAllContainers) app:web\nseen: s0; one#0 exited 3",
        "do: remove one0 keep-logs\nphase: Pending",
    ),
    (
        "a Never pod does not end when all are removed",
        "pod: Never app:web(policy=Never,in3=RestartAllContainers)\nseen: s0\nmemory: condition AllContainersRestarting True -3; was web exited 0 3",
        "phase: Running\nstage: Running\ndo: start web#1 in s0",
    ),
    (
        "a Never pod too",
        "pod: Never app:web(policy=Never,in3=RestartAllContainers)\nseen: s0; web#0 exited 3",
        "do: remove web0 keep-logs\nphase: Running\nstage: Running",
    ),
];

#[test]
fn other_pods() {
    check(OTHER_PODS);
}
