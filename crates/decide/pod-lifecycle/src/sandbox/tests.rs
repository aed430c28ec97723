//! When a sandbox is replaced, and the effect on the pod.

use super::*;
use crate::testing::{PlanCaseRow, check};

const CONDITIONS_THAT_REQUIRE_A_NEW_SANDBOX: &[PlanCaseRow] = &[
    ("none", "pod: Always app:web", "do: sandbox 0\nPodReadyToStartContainers: False"),
    (
        "ready",
        "pod: Always app:web\nseen: s0",
        "do: start web#0 in s0\nPodReadyToStartContainers: True",
    ),
    (
        "dead, never stopped: its network is taken down first",
        "pod: Always app:web\nseen: s0 dead",
        "do: stop-sandbox s0\nPodReadyToStartContainers: False",
    ),
    ("dead and stopped", "pod: Always app:web\nseen: s0 dead\nmemory: stopped s0", "do: sandbox 1"),
    (
        "the number goes on",
        "pod: Always app:web\nseen: s0 dead n=4\nmemory: stopped s0",
        "do: sandbox 5",
    ),
    (
        "two are ready",
        "pod: Always app:web\nseen: s0; s1",
        "do: stop-sandbox s1\nPodReadyToStartContainers: False",
    ),
    (
        "an old dead one does not matter",
        "pod: Always app:web\nseen: s0 dead; s1",
        "do: start web#0 in s1",
    ),
    (
        "an old ready one is not the newest",
        "pod: Always app:web\nseen: s0; s1 dead\nmemory: stopped s1",
        "do: stop-sandbox s0",
    ),
    ("no address", "pod: Always app:web\nseen: s0 noip", "do: stop-sandbox s0"),
    ("an empty address", "pod: Always app:web\nseen: s0 ip=", "do: stop-sandbox s0"),
    (
        "no address on the host",
        "pod: Always host app:web\nseen: s0 noip hostnet",
        "do: start web#0 in s0",
    ),
    ("moved to the host", "pod: Always host app:web\nseen: s0 podnet", "do: stop-sandbox s0"),
    ("moved from the host", "pod: Always app:web\nseen: s0 hostnet", "do: stop-sandbox s0"),
    ("the runtime did not say", "pod: Always app:web\nseen: s0", "do: start web#0 in s0"),
    (
        "one is being made",
        "pod: Always app:web\nmemory: flight -1 sandbox 0",
        "do:\nwhy: its sandbox is being made",
    ),
    (
        "one could not be made",
        "pod: Always app:web\nmemory: failure sandbox 8",
        "do:\nwake: 8\nwhy: making its sandbox failed: boom",
    ),
    ("and is tried again", "pod: Always app:web\nmemory: failure sandbox 0", "do: sandbox 0"),
    (
        "the network is not ready",
        "pod: Always app:web\nfacts: nonetwork",
        "do:\nwhy: the network of the node is not ready: no plugin\nevents: Warning NetworkNotReady pod network is not ready: no plugin",
    ),
    (
        "the node's troubles are told first",
        "pod: Always app:web\nmemory: unprepared\nfacts: nonetwork; volumes pending",
        "why: the network of the node is not ready: no plugin\ndo: prepare",
    ),
    (
        "which does not concern the host's",
        "pod: Always host app:web\nfacts: nonetwork",
        "do: sandbox 0",
    ),
    (
        "volumes are not there",
        "pod: Always app:web\nfacts: volumes pending data",
        "do:\nwhy: its volumes are not there yet: data",
    ),
    (
        "volumes cannot be had",
        "pod: Always app:web\nfacts: volumes failed no such disk",
        "do:\nwhy: its volumes cannot be set up: no such disk\nevents: Warning FailedMount pod Unable to attach or mount volumes: no such disk",
    ),
    (
        "cgroup and folders are not there",
        "pod: Always app:web\nmemory: unprepared; failure pod 5",
        "do:\nwake: 5\nwhy: making its cgroup and folders failed: boom",
    ),
];

#[test]
fn conditions_that_require_a_new_sandbox() {
    check(CONDITIONS_THAT_REQUIRE_A_NEW_SANDBOX);
}

const CONTAINERS_AND_SANDBOXES_REMOVED_BEFORE_A_NEW_SANDBOX: &[PlanCaseRow] = &[
    (
        "containers that still run are stopped first",
        "pod: Always app:web\nseen: s0 dead; web#0 running",
        "do: stop web0 30 PodEnds\nevents: ~Killing spec.containers{web} Stopping container web",
    ),
    (
        "then the sandbox",
        "pod: Always app:web\nseen: s0 dead; web#0 exited 137",
        "do: stop-sandbox s0\nevents: Normal SandboxChanged pod Pod sandbox changed, it will be killed and re-created.",
    ),
    (
        "then a new one",
        "pod: Always app:web\nseen: s0 dead; web#0 exited 137\nmemory: stopped s0",
        "do: sandbox 1\nimages: web#1",
    ),
    (
        "a stop in flight is waited for",
        "pod: Always app:web\nseen: s0 dead; web#0 exited 137\nmemory: flight -1 stop web web0 30",
        "do:",
    ),
    (
        "records of init containers go before the new one comes",
        "pod: Always init:one init:two app:web\nseen: s0 dead; one#0 exited 0; two#0 exited 0; web#0 exited 1\nmemory: stopped s0",
        "do: remove one0; remove two0",
    ),
    (
        "and both of one name, one after the other",
        "pod: Always init:one app:web\nseen: s0 dead; one#0 exited 1; one#1 exited 0; web#0 exited 1\nmemory: stopped s0",
        "do: remove one1",
    ),
    (
        "then the new one",
        "pod: Always init:one app:web\nseen: s0 dead; web#0 exited 1\nmemory: stopped s0",
        "do: sandbox 1\nimages: one#0",
    ),
    (
        "a sandbox that cannot be stopped",
        "pod: Always app:web\nseen: s0 dead\nmemory: failure sandbox 3",
        "do:\nwake: 3",
    ),
];

#[test]
fn containers_and_sandboxes_removed_before_a_new_sandbox() {
    check(CONTAINERS_AND_SANDBOXES_REMOVED_BEFORE_A_NEW_SANDBOX);
}

const PODS_THAT_GET_A_NEW_SANDBOX: &[PlanCaseRow] = &[
    (
        "Never, and it had containers",
        "pod: Never app:web app:log\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0",
        "do:\nwhy: its sandbox is gone, and its restart policy allows no new one",
    ),
    (
        "Never, and it had none",
        "pod: Never app:web\nseen: s0 dead\nmemory: stopped s0",
        "do: sandbox 1",
    ),
    (
        "Never, all exited: it is over",
        "pod: Never app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0",
        "do: cleanup\nphase: Succeeded\nstage: Ended",
    ),
    ("Never, the first sandbox", "pod: Never app:web\nseen: web#0 exited 0", "do: cleanup"),
    (
        "Never, and the runtime has lost its first",
        "pod: Never app:web app:log\nseen: web#0 exited 0",
        "do: sandbox 0\nimages: log#0",
    ),
    (
        "all done but a sidecar: nothing new",
        "pod: OnFailure side:a app:web\nseen: s0 dead; a#0 running; web#0 exited 0",
        "do: stop a0 30 PodEnds\nevents: Normal Killing spec.initContainers{a} Stopping container a",
    ),
    (
        "OnFailure skips what succeeded",
        "pod: OnFailure app:web app:log\nseen: s0 dead; web#0 exited 0; log#0 exited 1\nmemory: stopped s0",
        "do: sandbox 1\nimages: log#1",
    ),
    (
        "and starts only the other in it",
        "pod: OnFailure app:web app:log\nseen: s0 dead; web#0 exited 0; log#0 exited 1; s1",
        "do: start log#1 in s1",
    ),
    (
        "OnFailure with all succeeded is over",
        "pod: OnFailure app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0",
        "do: cleanup\nphase: Succeeded",
    ),
    (
        "by the container's own policy",
        "pod: Always app:web(policy=OnFailure) app:log\nseen: s0 dead; web#0 exited 0; log#0 exited 1\nmemory: stopped s0",
        "images: log#1",
    ),
    (
        "one that is never restarted begins again too",
        "pod: Always app:web(policy=Never) app:log\nseen: s0 dead; web#0 exited 1; log#0 exited 1\nmemory: stopped s0",
        "do: sandbox 1\nimages: web#1 log#1",
    ),
    (
        "and is started in the new one, once",
        "pod: OnFailure app:web(policy=Never) app:log\nseen: s0 dead; web#0 exited 0; log#0 exited 1; s1",
        "do: start web#1 in s1",
    ),
    (
        "what ended in this sandbox stays ended",
        "pod: Always app:web(policy=Never) app:log\nseen: s0 dead; s1; web#1 exited 0; log#1 running",
        "do:",
    ),
    (
        "after init containers its own policy counts",
        "pod: Always init:one app:web(policy=Never) app:log\nseen: s0 dead; web#0 exited 1; log#0 exited 1; s1; one#0 exited 0",
        "do: start log#1 in s1",
    ),
    (
        "a pod that is never restarted has no second life for any of its containers",
        "pod: Never app:web(policy=Always) app:log\nseen: s0 dead; web#0 exited 1; log#0 running\nmemory: stopped s0",
        "do: stop log0 30 PodEnds",
    ),
    (
        "the later sandbox is the one with the higher number, whatever the clock said",
        "pod: Always app:web\nseen: s1 n=1; s0 dead n=0",
        "do: start web#0 in s1",
    ),
    (
        "Always starts all again",
        "pod: Always app:web app:log\nseen: s0 dead; web#0 exited 0; log#0 exited 0\nmemory: stopped s0",
        "do: sandbox 1\nimages: web#1 log#1",
    ),
    (
        "init containers begin again from the first",
        "pod: Always init:one init:two app:web\nseen: s0 dead; web#0 exited 1; s1",
        "do: start one#0 in s1",
    ),
    (
        "a sidecar that runs is stopped after the others",
        "pod: Always side:proxy app:web\nseen: s0 dead; proxy#0 running; web#0 running",
        "do: stop web0 30 PodEnds",
    ),
];

#[test]
fn pods_that_get_a_new_sandbox() {
    check(PODS_THAT_GET_A_NEW_SANDBOX);
}

#[test]
fn the_number_of_the_sandbox_that_comes_or_stays() {
    let pod = Pod::default();
    let sandbox = |attempt, ready| SandboxRecord {
        attempt,
        ready,
        ips: vec!["10.0.0.1".to_owned()],
        ..SandboxRecord::default()
    };
    for (sandboxes, expected) in [
        (vec![], 0),
        (vec![sandbox(0, true)], 0),
        (vec![sandbox(2, true), sandbox(1, false)], 2),
        (vec![sandbox(2, false)], 3),
    ] {
        let observed = ObservedPod { sandboxes: sandboxes.into(), ..ObservedPod::default() };
        assert_eq!(sandbox_attempt(&pod, &observed), expected, "{observed:?}");
    }
}
