//! Regular containers that exit, change, are unknown or not in the specification.

use crate::testing::{PlanCaseRow, check};

const EXITS: &[PlanCaseRow] = &[
    (
        "Always after failure",
        "pod: Always app:web\nseen: s0; web#0 exited 1",
        "do: start web#1 in s0\nphase: Running",
    ),
    (
        "Always after success",
        "pod: Always app:web\nseen: s0; web#0 exited 0",
        "do: start web#1 in s0\nphase: Running",
    ),
    (
        "OnFailure after failure",
        "pod: OnFailure app:web\nseen: s0; web#0 exited 2",
        "do: start web#1 in s0\nphase: Running",
    ),
    (
        "OnFailure after success",
        "pod: OnFailure app:web\nseen: s0; web#0 exited 0",
        "do: stop-sandbox s0\nphase: Succeeded",
    ),
    (
        "Never after failure",
        "pod: Never app:web\nseen: s0; web#0 exited 2",
        "do: stop-sandbox s0\nphase: Failed",
    ),
    (
        "Never after success",
        "pod: Never app:web\nseen: s0; web#0 exited 0",
        "do: stop-sandbox s0\nphase: Succeeded",
    ),
    (
        "Never, another still runs",
        "pod: Never app:web app:log\nseen: s0; web#0 exited 2; log#0 running",
        "do:\nphase: Running\nwhy: container web exited with 2 and is not started again",
    ),
    (
        "Never, another never started",
        "pod: Never app:web app:log\nseen: s0; web#0 exited 2",
        "do: start log#0 in s0\nphase: Pending",
    ),
    (
        "Never, one failed, one succeeded",
        "pod: Never app:web app:log\nseen: s0; web#0 exited 2; log#0 exited 0",
        "phase: Failed",
    ),
    (
        "by the container's own policy",
        "pod: Never app:web(policy=Always)\nseen: s0; web#0 exited 0",
        "do: start web#1 in s0\nphase: Running",
    ),
    (
        "the pod says Always, the container Never",
        "pod: Always app:web(policy=Never)\nseen: s0; web#0 exited 1",
        "do: stop-sandbox s0\nphase: Failed",
    ),
    (
        "a rule matches",
        "pod: Never app:web(policy=Never,in42=Restart)\nseen: s0; web#0 exited 42",
        "do: start web#1 in s0\nphase: Running",
    ),
    (
        "no rule matches",
        "pod: Never app:web(policy=Never,in42=Restart)\nseen: s0; web#0 exited 41",
        "phase: Failed",
    ),
    (
        "the gate is off",
        "pod: Never app:web(policy=Always)\nseen: s0; web#0 exited 0\nfacts: norules",
        "phase: Succeeded",
    ),
    (
        "Never, but stopped for another version of it",
        "pod: Never app:web\nseen: s0; web#0 exited 137\nmemory: killed web web0",
        "do: start web#1 in s0\nphase: Running\nweb: waiting ContainerCreating r0\nweb.last: ended 137 Error",
    ),
    (
        "OnFailure, stopped for another version of it without an error",
        "pod: OnFailure app:web\nseen: s0; web#0 exited 0\nmemory: killed web web0",
        "do: start web#1 in s0\nphase: Running\nweb: waiting ContainerCreating r0\nweb.last: ended 0 Completed",
    ),
    (
        "OnFailure, stopped for its probe with an error, which the API server lets run again",
        "pod: OnFailure app:web\nseen: s0; web#0 exited 1\nmemory: killed web web0",
        "do: start web#1 in s0\nphase: Running\nweb: ended 1 Error r0",
    ),
    (
        "Never, stopped for another version earlier, and that one has exited",
        "pod: Never app:web\nseen: s0; web#0 exited 137; web#1 exited 1\nmemory: killed web web0",
        "do: stop-sandbox s0\nphase: Failed",
    ),
    (
        "only the newest counts",
        "pod: OnFailure app:web\nseen: s0; web#0 exited 1; web#1 exited 0",
        "phase: Succeeded\nweb: ended 0 Completed r1\nweb.last: ended 1 Error",
    ),
    (
        "an older one that runs is not overlooked by the newest",
        "pod: Always app:web\nseen: s0; web#0 exited 1; web#1 running",
        "do:\nweb: running r1 started ready\nweb.last: ended 1 Error",
    ),
];

#[test]
fn exits() {
    check(EXITS);
}

const CHANGED_AND_UNKNOWN_CONTAINERS_ARE_STOPPED: &[PlanCaseRow] = &[
    (
        "the image changed",
        "pod: Always app:web\nseen: s0; web#0 running changed",
        "do: stop web0 30 Changed\nevents: Normal Killing spec.containers{web} Container web definition changed, will be restarted",
    ),
    (
        "it comes back whatever the policy",
        "pod: Never app:web\nseen: s0; web#0 running changed",
        "do: stop web0 30 Changed\nevents: ~definition changed, will be restarted",
    ),
    (
        "the runtime does not tell the hash",
        "pod: Always app:web\nseen: s0; web#0 running nohash",
        "do:",
    ),
    (
        "one that has exited is not compared",
        "pod: Never app:web app:log\nseen: s0; web#0 exited 0 changed; log#0 running",
        "do:",
    ),
    (
        "unknown state",
        "pod: Always app:web\nseen: s0; web#0 unknown",
        "do: stop web0 30 StateUnknown\nevents: Normal Killing spec.containers{web} Container is in \"unknown\" state, try killing it before restart",
    ),
    (
        "unknown, and stopped",
        "pod: Always app:web\nseen: s0; web#0 unknown\nmemory: stopdone web web0 -1",
        "do: start web#1 in s0",
    ),
    (
        "unknown, of a Never pod",
        "pod: Never app:web\nseen: s0; web#0 unknown",
        "do: stop web0 30 StateUnknown",
    ),
    (
        "unknown while another starts",
        "pod: Always app:web app:log\nseen: s0; web#0 unknown",
        "do: stop web0 30 StateUnknown; start log#0 in s0",
    ),
    (
        "not in the specification",
        "pod: Always app:web\nseen: s0; web#0 running; old#0 running",
        "do: stop old0 30 NotInSpecification",
    ),
    ("and exited", "pod: Always app:web\nseen: s0; web#0 running; old#0 exited 0", "do:"),
    (
        "a failed postStart hook",
        "pod: Always app:web(post)\nseen: s0; web#0 running\nmemory: hookfailed web web0; trouble web PostStartHookError none",
        "do: stop web0 30 FailedPostStartHook\nweb: waiting ContainerCreating r0\nphase: Pending\nReady: False ContainersNotReady containers with unready status: [web]\nwhy: container web is being stopped: FailedPostStartHook, will be restarted\nevents: ~Killing spec.containers{web} FailedPostStartHook",
    ),
    (
        "it is not ready while it is being stopped",
        "pod: Always app:web(post) app:log\nseen: s0; web#0 running; log#0 running\nmemory: hookfailed web web0; stopping web web0 28; flight -2 stop web web0 30",
        "do:\nweb: waiting ContainerCreating r0\nlog: running r0 started ready\nReady: False ContainersNotReady containers with unready status: [web]\nContainersReady: False ContainersNotReady containers with unready status: [web]",
    ),
    (
        "nor by what its readiness probe says, and no probe asks it",
        "pod: Always app:web(post,ready,live)\nseen: s0; web#0 running\nmemory: hookfailed web web0; ready web web0",
        "web: waiting ContainerCreating r0\nprobes: ",
    ),
    (
        "it is told as the one before it",
        "pod: Always app:web(post)\nseen: s0; web#0 exited 1; web#1 running\nmemory: hookfailed web web1",
        "do: stop web1 30 FailedPostStartHook\nweb: ended 1 Error r0\nphase: Running",
    ),
    (
        "before a changed definition, and its own policy says whether it comes back",
        "pod: Never app:web(post) app:log\nseen: s0; web#0 running changed; log#0 running\nmemory: hookfailed web web0",
        "do: stop web0 30 FailedPostStartHook\nimages: ",
    ),
    (
        "of the container before",
        "pod: Always app:web(post)\nseen: s0; web#1 running\nmemory: hookfailed web web0",
        "do:",
    ),
    (
        "after that stop",
        "pod: Always app:web(post)\nseen: s0; web#0 exited 137 done=-1\nmemory: hookfailed web web0; trouble web PostStartHookError none",
        "do: start web#1 in s0\nweb: waiting PostStartHookError boom r0",
    ),
    (
        "a stop in flight",
        "pod: Always app:web\nseen: s0; web#0 running changed\nmemory: flight -5 stop web web0 30; stopping web web0 25",
        "do:",
    ),
    (
        "a stop that a killed agent began goes on with what is left",
        "pod: Always app:web\nseen: s0; web#0 running changed\nmemory: stopping web web0 12",
        "do: stop web0 12 Changed",
    ),
    (
        "a stop that failed",
        "pod: Always app:web\nseen: s0; web#0 running changed\nmemory: failure web 6",
        "do:\nwake: 6",
    ),
];

#[test]
fn changed_and_unknown_containers_are_stopped() {
    check(CHANGED_AND_UNKNOWN_CONTAINERS_ARE_STOPPED);
}

const STARTS_THAT_FAILED: &[PlanCaseRow] = &[
    (
        "wrong configuration",
        "pod: Always app:web\nseen: s0\nmemory: trouble web CreateContainerConfigError 7",
        "do:\nwake: 7\nimages:\nweb: waiting CreateContainerConfigError boom r0\nphase: Pending\nwhy: container web cannot start: CreateContainerConfigError: boom\nnext: it is tried again at 1970-01-12T13:46:47Z",
    ),
    (
        "tried again",
        "pod: Always app:web\nseen: s0\nmemory: trouble web CreateContainerConfigError 0",
        "do: start web#0 in s0\nimages: web#0\nweb: waiting CreateContainerConfigError boom r0\nevents:",
    ),
    (
        "does not hold up the next",
        "pod: Always app:web app:log\nseen: s0\nmemory: trouble web CreateContainerError 7",
        "do: start log#0 in s0",
    ),
    (
        "holds up what comes after an init container",
        "pod: Always init:one app:web\nseen: s0\nmemory: trouble one CreateContainerError 7",
        "do:",
    ),
    (
        "the reason stays while it is tried",
        "pod: Always app:web\nseen: s0\nmemory: shown web CreateContainerError; flight -1 start web 0",
        "web: waiting CreateContainerError boom r0",
    ),
    (
        "a crash loop is not called so while it is started",
        "pod: Always app:web\nseen: s0; web#1 exited 1\nmemory: backoff web 20 0; flight -1 start web 2",
        "web: ended 1 Error r1",
    ),
    (
        "but by what it was called before",
        "pod: Always app:web\nseen: s0; web#1 exited 1\nmemory: backoff web 20 0; flight -1 start web 2; shown web CrashLoopBackOff",
        "web: waiting CrashLoopBackOff boom r1",
    ),
    (
        "a crash loop goes before a failed start",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=-1\nmemory: backoff web 20 -1; trouble web CreateContainerError 2",
        "web: ~waiting CrashLoopBackOff\nwake: 19",
    ),
];

#[test]
fn starts_that_failed() {
    check(STARTS_THAT_FAILED);
}
