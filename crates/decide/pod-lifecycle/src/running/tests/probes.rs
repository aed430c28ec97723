//! Probes: which run, and the effect of their results.

use crate::testing::{PlanCaseRow, check};

const PROBES_RUN_WHERE_THEY_ARE_DUE: &[PlanCaseRow] = &[
    (
        "all but startup",
        "pod: Always app:web(live,ready)\nseen: s0; web#0 running",
        "probes: web0:Liveness web0:Readiness!",
    ),
    (
        "only startup at first",
        "pod: Always app:web(startup,live,ready)\nseen: s0; web#0 running",
        "probes: web0:Startup\nweb: running r0\nphase: Running",
    ),
    (
        "the others after it",
        "pod: Always app:web(startup,live,ready)\nseen: s0; web#0 running\nmemory: startup web web0",
        "probes: web0:Liveness web0:Readiness!\nweb: running r0 started",
    ),
    (
        "a verdict that is known already",
        "pod: Always app:web(ready)\nseen: s0; web#0 running\nmemory: ready web web0",
        "probes: web0:Readiness\nweb: running r0 started ready",
    ),
    (
        "not of the container before",
        "pod: Always app:web(ready)\nseen: s0; web#1 running\nmemory: ready web web0",
        "probes: web1:Readiness!\nweb: running r1 started",
    ),
    (
        "none of one that failed",
        "pod: Always app:web(live,ready)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "probes: web0:Readiness!",
    ),
    (
        "none of one that does not run",
        "pod: Always app:web(live)\nseen: s0; web#0 exited 1",
        "probes:",
    ),
    (
        "nor the startup probe that it never passed",
        "pod: Always app:web(startup)\nseen: s0; web#0 exited 1",
        "probes:",
    ),
    (
        "none while the postStart hook runs",
        "pod: Always app:web(post,startup)\nseen: s0; web#0 running\nmemory: flight -1 start web 0",
        "probes:",
    ),
    (
        "none of an init container",
        "pod: Always init:one(live) app:web\nseen: s0; one#0 running",
        "probes:",
    ),
    (
        "of a sidecar",
        "pod: Always side:a(live) app:web\nseen: s0; a#0 running",
        "probes: a0:Liveness",
    ),
    (
        "while the pod ends only readiness",
        "pod: Always app:web(live,ready)\nseen: s0; web#0 running\nwish: deleted",
        "probes: web0:Readiness!",
    ),
    (
        "no startup probe while the pod ends",
        "pod: Always app:web(startup)\nseen: s0; web#0 running\nwish: deleted",
        "probes:",
    ),
    (
        "the container before it failed",
        "pod: Always app:web(live)\nseen: s0; web#1 running\nmemory: failed web web0 liveness",
        "probes: web1:Liveness",
    ),
    (
        "none of a pod that has failed",
        "pod: Always app:web(ready) deadline=1\nseen: s0; web#0 running",
        "probes:",
    ),
];

#[test]
fn probes_run_where_they_are_due() {
    check(PROBES_RUN_WHERE_THEY_ARE_DUE);
}

const PROBE_RESULTS_CHANGE_THE_PLAN: &[PlanCaseRow] = &[
    (
        "liveness",
        "pod: Always app:web(live)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 30 LivenessProbe\nevents: Normal Killing spec.containers{web} Container web failed liveness probe, will be restarted\nwhy: ~container web is being stopped: Container web failed liveness probe",
    ),
    (
        "with the hook",
        "pod: Always app:web(live,pre)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 30 LivenessProbe with-hook",
    ),
    (
        "startup, with the hook",
        "pod: Always app:web(startup,pre)\nseen: s0; web#0 running\nmemory: failed web web0 startup",
        "do: stop web0 30 StartupProbe with-hook\nevents: ~Container web failed startup probe, will be restarted",
    ),
    (
        "liveness with a grace of its own",
        "pod: Always app:web(live=3/5)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 5 LivenessProbe",
    ),
    (
        "a longer grace of its own",
        "pod: Always app:web(live=3/90)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 90 LivenessProbe",
    ),
    (
        "startup with a grace of its own",
        "pod: Always app:web(startup=3/6)\nseen: s0; web#0 running\nmemory: failed web web0 startup",
        "do: stop web0 6 StartupProbe",
    ),
    (
        "a pod without a grace",
        "pod: Always grace=x app:web(live=3/5)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 2 LivenessProbe",
    ),
    (
        "a deletion's grace goes first",
        "pod: Always deletion=8 app:web(live=3/5)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 8 LivenessProbe",
    ),
    (
        "Never: the pod is over",
        "pod: Never app:web(live)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 30 PodEnds",
    ),
    (
        "Never, with another",
        "pod: Never app:web(live) app:log\nseen: s0; web#0 running; log#0 running\nmemory: failed web web0 liveness",
        "do: stop web0 30 LivenessProbe\nevents: Normal Killing spec.containers{web} Container web failed liveness probe",
    ),
    (
        "the container's own policy",
        "pod: Never app:web(live,policy=Always) app:log\nseen: s0; web#0 running; log#0 running\nmemory: failed web web0 liveness",
        "events: ~failed liveness probe, will be restarted",
    ),
    (
        "of the container before",
        "pod: Always app:web(live)\nseen: s0; web#1 running\nmemory: failed web web0 liveness",
        "do:",
    ),
    (
        "a change goes before",
        "pod: Always app:web(live)\nseen: s0; web#0 running changed\nmemory: failed web web0 liveness",
        "do: stop web0 30 Changed",
    ),
    (
        "not ready",
        "pod: Always app:web(ready)\nseen: s0; web#0 running\nmemory: unready web web0",
        "do:\nphase: Running\nweb: running r0 started\nReady: False ContainersNotReady containers with unready status: [web]\nwhy: the readiness probe of container web has not succeeded yet",
    ),
    (
        "an init container that has done its work is not what is lacking",
        "pod: Always init:one app:web(ready)\nseen: s0; one#0 exited 0; web#0 running",
        "do:\nwhy: the readiness probe of container web has not succeeded yet",
    ),
    (
        "not ready before the first result",
        "pod: Always app:web(ready)\nseen: s0; web#0 running",
        "web: running r0 started",
    ),
    (
        "alive before the first result",
        "pod: Always app:web(live)\nseen: s0; web#0 running",
        "do:\nweb: running r0 started ready",
    ),
    (
        "not started before the first result",
        "pod: Always app:web(startup)\nseen: s0; web#0 running",
        "do:\nweb: running r0\nwhy: the startup probe of container web has not succeeded yet",
    ),
    (
        "ready and not started is not ready",
        "pod: Always app:web(startup,ready)\nseen: s0; web#0 running\nmemory: ready web web0",
        "web: running r0",
    ),
];

#[test]
fn probe_results_change_the_plan() {
    check(PROBE_RESULTS_CHANGE_THE_PLAN);
}
