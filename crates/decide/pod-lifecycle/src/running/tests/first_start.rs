//! From nothing to running, and what can block it.

use crate::testing::{PlanCaseRow, check};

const STEP_BY_STEP: &[PlanCaseRow] = &[
    (
        "nothing is there, nothing prepared",
        "pod: Always app:web\nmemory: unprepared; new",
        "do: prepare\nphase: Pending\nweb: waiting ContainerCreating r0\nstage: Running\nstarted: 0\nmarks: Seen; Admitted; PullBegan { container: \"web\" }; ImageReady { container: \"web\" }",
    ),
    (
        "being prepared",
        "pod: Always app:web\nmemory: unprepared; flight -1 prepare",
        "do:\nwhy: its cgroup and folders are being made",
    ),
    (
        "prepared",
        "pod: Always app:web",
        "do: sandbox 0\nimages: web#0\nvolumes: true\nwhy: ~it needs a new sandbox: it has no sandbox yet",
    ),
    (
        "sandbox there",
        "pod: Always app:web\nseen: s0",
        "do: start web#0 in s0\nphase: Pending\nip: 10.0.0.1\nwhy: container web is being started",
    ),
    (
        "sandbox there, but not prepared by this agent",
        "pod: Always app:web\nseen: s0\nmemory: unprepared",
        "do: prepare",
    ),
    (
        "being started",
        "pod: Always app:web\nseen: s0\nmemory: flight -1 start web 0",
        "do:\nimages:\nwhy: container web is being started or stopped",
    ),
    (
        "runs",
        "pod: Always app:web\nseen: s0; web#0 running",
        "do:\nphase: Running\nweb: running r0 started ready\nReady: True\nwhy: none\nmarks: ~FirstReady",
    ),
    (
        "two, one after the other",
        "pod: Always app:web app:log\nseen: s0",
        "do: start web#0 in s0\nimages: web#0 log#0",
    ),
    (
        "the second",
        "pod: Always app:web app:log\nseen: s0; web#0 running",
        "do: start log#0 in s0\nphase: Pending\nReady: False ContainersNotReady containers with unready status: [log]",
    ),
    (
        "not while the first is being started",
        "pod: Always app:web app:log\nseen: s0; web#0 running\nmemory: flight -1 start web 0",
        "do: start log#0 in s0",
    ),
    ("host network", "pod: Always host app:web\nseen: s0 noip hostnet", "do: start web#0 in s0"),
];

#[test]
fn step_by_step() {
    check(STEP_BY_STEP);
}

const CONDITIONS_THAT_BLOCK_A_START: &[PlanCaseRow] = &[
    (
        "not admitted",
        "pod: Always app:web\nfacts: pending",
        "do:\nwhy: the node has not admitted it yet\nvolumes: false\nphase: Pending",
    ),
    (
        "not admitted again yet, but it runs",
        "pod: Always app:web(live)\nseen: s0; web#0 running\nfacts: pending",
        "do:\nphase: Running\nprobes: web0:Liveness",
    ),
    (
        "no devices yet",
        "pod: Always app:web\nfacts: nodevices",
        "do:\nwhy: its devices are being allocated by their plugins\nvolumes: false\nphase: Pending",
    ),
    (
        "no runtime",
        "pod: Always app:web\nfacts: noruntime",
        "do:\nwhy: the container runtime cannot be used: nobody answers",
    ),
    (
        "no runtime, and it runs",
        "pod: Always app:web\nseen: s0; web#0 running\nfacts: noruntime",
        "do:\nphase: Running\nwhy: the container runtime cannot be used: nobody answers",
    ),
    (
        "never looked at",
        "pod: Always app:web\nseen: never",
        "do:\nwhy: the runtime has not been looked at since the last step",
    ),
    (
        "not looked at since the last act",
        "pod: Always app:web\nseen: s0\nmemory: ended pod 0",
        "do:\nwhy: the runtime has not been looked at since the last step",
    ),
    (
        "looked at after the last act",
        "pod: Always app:web\nseen: s0\nmemory: ended pod -1",
        "do: start web#0 in s0",
    ),
    ("an old look, no act since", "pod: Always app:web\nseen: stale; s0", "do: start web#0 in s0"),
    (
        "an old look, and an act since",
        "pod: Always app:web\nseen: stale; s0\nmemory: ended web -50",
        "do:",
    ),
    (
        "an old look does not disturb a pod that is well",
        "pod: Always app:web\nseen: stale; s0; web#0 running\nmemory: ended web -50",
        "do:\nwhy: none",
    ),
    (
        "volumes for a restart",
        "pod: Always app:web\nseen: s0; web#0 exited 1\nfacts: volumes pending",
        "do:\nwhy: its volumes are not there yet",
    ),
    (
        "nothing is needed to go on running",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: unprepared\nfacts: volumes pending; nonetwork; noimages",
        "do:\nwhy: none",
    ),
    (
        "a sandbox that is there needs no network plugin",
        "pod: Always app:web\nseen: s0\nfacts: nonetwork",
        "do: start web#0 in s0",
    ),
];

#[test]
fn conditions_that_block_a_start() {
    check(CONDITIONS_THAT_BLOCK_A_START);
}

const IMAGES: &[PlanCaseRow] = &[
    (
        "nothing known yet",
        "pod: Always app:web\nseen: s0\nfacts: noimages",
        "do:\nimages: web#0\nwhy: the image img of container web is not there yet\nweb: waiting ContainerCreating r0",
    ),
    (
        "being pulled",
        "pod: Always app:web\nseen: s0\nfacts: image web 0 pulling",
        "do:\nwhy: the image img of container web is not there yet",
    ),
    ("there", "pod: Always app:web\nseen: s0\nfacts: image web 0 present", "do: start web#0 in s0"),
    (
        "there for another start",
        "pod: Always app:web\nseen: s0; web#0 exited 1\nfacts: image web 0 present",
        "do:\nimages: web#1",
    ),
    (
        "cannot be pulled",
        "pod: Always app:web\nseen: s0\nfacts: image web 0 ErrImagePull 4 no such image",
        "do:\nwake: 4\nweb: waiting ErrImagePull 4 no such image r0\nphase: Pending\nevents: Warning Failed spec.containers{web} Error: ErrImagePull",
    ),
    (
        "tried again at this moment: there is nothing to wake for",
        "pod: Always app:web\nseen: s0\nfacts: image web 0 ErrImagePull 0 no such image",
        "do:\nwake: none\nweb: waiting ErrImagePull 0 no such image r0",
    ),
    (
        "waits for another pull",
        "pod: Always app:web\nseen: s0\nfacts: image web 0 ImagePullBackOff 9 Back-off",
        "web: waiting ImagePullBackOff 9 Back-off r0\nwake: 9\nimages: web#0",
    ),
    (
        "one that cannot be had does not hold up the next",
        "pod: Always app:web app:log\nseen: s0\nfacts: image web 0 ErrImageNeverPull not here",
        "do: start log#0 in s0",
    ),
    (
        "one on its way does",
        "pod: Always app:web app:log\nseen: s0\nfacts: image web 0 pulling",
        "do:",
    ),
    (
        "an init container's holds up all",
        "pod: Always init:one app:web\nseen: s0\nfacts: image one 0 ErrImagePull 4 no",
        "do:\none: ~waiting ErrImagePull\nweb: waiting PodInitializing r0",
    ),
    (
        "one that ran and cannot be had again",
        "pod: Always app:web\nseen: s0; web#0 exited 1\nfacts: image web 1 ErrImagePull 4 no",
        "web: waiting ErrImagePull 4 no r0\nweb.last: ended 1 Error\nphase: Running",
    ),
    (
        "asked for while the sandbox is made",
        "pod: Always init:one app:web\nfacts: noimages",
        "do: sandbox 0\nimages: one#0",
    ),
];

#[test]
fn images() {
    check(IMAGES);
}

const NUMBERS_OF_STARTS: &[PlanCaseRow] = &[
    ("the first", "pod: Always app:web\nseen: s0", "do: start web#0 in s0"),
    ("after an exit", "pod: Always app:web\nseen: s0; web#7 exited 1", "do: start web#8 in s0"),
    (
        "logs of a life that the runtime forgot",
        "pod: Always app:web\nseen: s0\nfacts: log web 4",
        "do: start web#5 in s0",
    ),
    (
        "also when it was told that it waits",
        "pod: Always app:web\nseen: s0\nmemory: was web waiting 0\nfacts: log web 4",
        "do: start web#5 in s0",
    ),
    (
        "a record that was collected",
        "pod: Always app:web\nseen: s0\nmemory: was web exited 3 1",
        "do: start web#4 in s0\nweb: ended 1 Error last words r3",
    ),
    (
        "a container that vanished",
        "pod: Always app:web\nseen: s0\nmemory: was web running 3",
        "do: start web#4 in s0",
    ),
    (
        "and was told to have",
        "pod: Always app:web\nseen: s0\nmemory: was web waiting 4",
        "do: start web#4 in s0",
    ),
    (
        "the runtime's own number where nothing else is written",
        "pod: Always app:web\nseen: s0; web#3 exited 1 nocount",
        "do: start web#4 in s0",
    ),
    (
        "made, never started",
        "pod: Always app:web\nseen: s0; web#2 created",
        "do: remove web2 keep-logs",
    ),
    (
        "no number is used twice, even if the runtime forgot",
        "pod: Always app:web\nseen: s0; web#2 exited 1 done=-90\nmemory: used web 7",
        "do: start web#8 in s0",
    ),
    (
        "nor when it has nothing",
        "pod: Always app:web\nseen: s0\nmemory: used web 7; was web waiting 3",
        "do: start web#8 in s0",
    ),
    ("and gone", "pod: Always app:web\nseen: s0; web#1 exited 1 done=-90", "do: start web#2 in s0"),
    (
        "made but never started the first time",
        "pod: Always app:web\nseen: s0; web#0 created",
        "do: remove web0 keep-logs",
    ),
    (
        "it cannot be removed",
        "pod: Always app:web\nseen: s0; web#0 created\nmemory: failure web 3",
        "do:\nwake: 3",
    ),
    (
        "one that is being started may be made already",
        "pod: Always app:web\nseen: s0; web#0 created\nmemory: flight -1 start web 0",
        "do:",
    ),
];

#[test]
fn numbers_of_starts() {
    check(NUMBERS_OF_STARTS);
}
