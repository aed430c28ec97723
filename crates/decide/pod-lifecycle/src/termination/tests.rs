//! Termination of pods.

use crate::testing::{PlanCaseRow, check};

const CONTAINERS_STOP_THEN_THE_SANDBOX_THEN_THE_REST: &[PlanCaseRow] = &[
    (
        "running",
        "pod: Always app:web\nseen: s0; web#0 running\nwish: deleted",
        "do: stop web0 30 PodEnds\nstage: Ending\nevents: Normal Killing spec.containers{web} Stopping container web",
    ),
    (
        "all at once",
        "pod: Always app:web app:log\nseen: s0; web#0 running; log#0 running\nwish: deleted",
        "do: stop log0 30 PodEnds; stop web0 30 PodEnds",
    ),
    (
        "with its hook",
        "pod: Always app:web(pre)\nseen: s0; web#0 running\nwish: deleted",
        "do: stop web0 30 PodEnds with-hook",
    ),
    (
        "an init container too",
        "pod: Always init:one app:web\nseen: s0; one#0 running\nwish: deleted",
        "do: stop one0 30 PodEnds",
    ),
    (
        "an ephemeral one too",
        "pod: Always app:web eph:debug\nseen: s0; web#0 exited 0; debug#0 running\nwish: deleted",
        "do: stop debug0 30 PodEnds",
    ),
    (
        "a container of unknown state too",
        "pod: Always app:web\nseen: s0; web#0 unknown\nwish: deleted",
        "do: stop web0 30 PodEnds",
    ),
    (
        "a stranger too",
        "pod: Always app:web\nseen: s0; old#0 running\nwish: deleted",
        "do: stop old0 30 PodEnds",
    ),
    (
        "one that was made and never started is not stopped",
        "pod: Always app:web\nseen: s0; web#0 created\nwish: deleted",
        "do: stop-sandbox s0",
    ),
    (
        "exited",
        "pod: Always app:web\nseen: s0; web#0 exited 0\nwish: deleted",
        "do: stop-sandbox s0\nstage: Ending",
    ),
    (
        "unknown, and the runtime said that it stopped",
        "pod: Always app:web\nseen: s0; web#0 unknown\nmemory: stopdone web web0 -1\nwish: deleted",
        "do: stop-sandbox s0",
    ),
    (
        "sandbox stopped",
        "pod: Always app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0\nwish: deleted",
        "do: cleanup all; remove web0\nstage: Ended",
    ),
    (
        "a dead sandbox that was never stopped",
        "pod: Always app:web\nseen: s0 dead\nwish: deleted",
        "do: stop-sandbox s0",
    ),
    (
        "one that is ready was not stopped",
        "pod: Always app:web\nseen: s0\nmemory: stopped s0\nwish: deleted",
        "do: stop-sandbox s0",
    ),
    (
        "two sandboxes, one after the other",
        "pod: Always app:web\nseen: s0 dead; s1\nmemory: stopped s0\nwish: deleted",
        "do: stop-sandbox s1",
    ),
    (
        "containers gone",
        "pod: Always app:web\nseen: s0 dead\nmemory: stopped s0; cleaned all\nwish: deleted",
        "do: remove-sandbox s0\nstage: Ended",
    ),
    (
        "all gone",
        "pod: Always app:web\nmemory: cleaned all\nwish: deleted",
        "do:\nstage: Finished\nwhy: none",
    ),
    (
        "nothing was ever there",
        "pod: Always app:web\nwish: deleted",
        "do: cleanup all\nstage: Ended",
    ),
    (
        "cleaned, but not the folders",
        "pod: Always app:web\nmemory: cleaned some\nwish: deleted",
        "do: cleanup all",
    ),
    (
        "nobody heard the exit codes yet",
        "pod: Always app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0; cleaned all\nfacts: unheard\nwish: deleted",
        "do:\nstage: Ended\nwhy: the API server has not heard its last status yet",
    ),
    (
        "clean-up failed",
        "pod: Always app:web\nmemory: failure pod 4\nwish: deleted",
        "do:\nwake: 4\nwhy: cleaning up after the pod failed: boom",
    ),
];

#[test]
fn containers_stop_then_the_sandbox_then_the_rest() {
    check(CONTAINERS_STOP_THEN_THE_SANDBOX_THEN_THE_REST);
}

const GRACE_ONLY_SHRINKS_AND_SPENT_TIME_IS_SPENT: &[PlanCaseRow] = &[
    (
        "the pod's own",
        "pod: Always grace=60 app:web\nseen: s0; web#0 running\nwish: deleted",
        "do: stop web0 60 PodEnds",
    ),
    (
        "what the deletion says",
        "pod: Always deletion=7 app:web\nseen: s0; web#0 running\nwish: deleted",
        "do: stop web0 7 PodEnds",
    ),
    (
        "a longer deletion too",
        "pod: Always grace=5 deletion=70 app:web\nseen: s0; web#0 running\nwish: deleted",
        "do: stop web0 70 PodEnds",
    ),
    (
        "what the wish says",
        "pod: Always app:web\nseen: s0; web#0 running\nwish: deleted grace=4",
        "do: stop web0 4 PodEnds",
    ),
    (
        "the shorter of both",
        "pod: Always deletion=9 app:web\nseen: s0; web#0 running\nwish: deleted grace=20",
        "do: stop web0 9 PodEnds",
    ),
    (
        "at least one second",
        "pod: Always app:web\nseen: s0; web#0 running\nwish: deleted grace=0",
        "do: stop web0 1 PodEnds",
    ),
    (
        "none said",
        "pod: Always app:web grace=x\nseen: s0; web#0 running\nwish: deleted",
        "do: stop web0 1 PodEnds",
    ),
    (
        "an orphan",
        "pod: Always app:web\nseen: s0; web#0 running\nwish: orphan",
        "do: stop web0 1 PodEnds",
    ),
    (
        "what was spent is spent",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -12 30\nwish: deleted",
        "do: stop web0 18 PodEnds",
    ),
    (
        "a longer one is not taken",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -12 30\nwish: deleted grace=60",
        "do: stop web0 18 PodEnds",
    ),
    (
        "what a stop before the end has spent is spent too",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: stopping web web0 12\nwish: deleted",
        "do: stop web0 12 PodEnds",
    ),
    (
        "another container's is not",
        "pod: Always app:web\nseen: s0; web#1 running\nmemory: stopping web web0 12\nwish: deleted",
        "do: stop web1 30 PodEnds",
    ),
    (
        "shorter, but what is left is shorter still",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -28 30\nwish: deleted grace=20",
        "do: stop web0 2 PodEnds",
    ),
    (
        "all is spent",
        "pod: Always app:web(pre)\nseen: s0; web#0 running\nmemory: ending -40 30\nwish: deleted",
        "do: stop web0 0 PodEnds",
    ),
    (
        "shorter while stopping",
        "pod: Always app:web(pre)\nseen: s0; web#0 running\nmemory: ending -2 30; stopping web web0 28; flight -2 stop web web0 30\nwish: deleted grace=5",
        "do: stop web0 5 PodEnds with-hook replaces",
    ),
    (
        "the hook is over and is not run again",
        "pod: Always app:web(pre)\nseen: s0; web#0 running\nmemory: ending -2 30; hooked web web0 28; flight -2 stop web web0 30\nwish: deleted grace=5",
        "do: stop web0 5 PodEnds replaces",
    ),
    (
        "the same again changes nothing",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -2 30; flight -2 stop web web0 30\nwish: deleted",
        "do:",
    ),
    (
        "shorter, but not sooner",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -28 30; flight -28 stop web web0 30\nwish: deleted grace=20",
        "do:",
    ),
    (
        "shorter by no more than things take",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -2 30; flight -2 stop web web0 30\nwish: deleted grace=27",
        "do:\nwake: 27",
    ),
    (
        "the stop of another container of that name is left alone",
        "pod: Always app:web\nseen: s0; web#0 running; web#1 running\nmemory: ending -2 30; flight -2 stop web web0 30\nwish: deleted grace=5",
        "do: stop web0 5 PodEnds replaces",
    ),
    (
        "it cannot be stopped",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -2 30; failure web 6\nwish: deleted",
        "do:\nwake: 6",
    ),
    (
        "said to be stopped, but runs",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -2 30; stopdone web web0 -3\nwish: deleted",
        "do:\nwake: 7",
    ),
    (
        "asked again later",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -12 30; stopdone web web0 -10\nwish: deleted",
        "do: stop web0 18 PodEnds",
    ),
    (
        "much too long",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -45 30; flight -45 stop web web0 30\nwish: deleted",
        "events: Warning ExceededGracePeriod pod Container runtime did not kill the pod within specified grace period.",
    ),
    (
        "much too long for the shorter grace that came later",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -20 30; flight -20 stop web web0 30\nwish: deleted grace=4",
        "events: ~Warning ExceededGracePeriod pod",
    ),
    (
        "not yet",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -44 30; flight -44 stop web web0 30\nwish: deleted",
        "events:\nwake: 1",
    ),
    (
        "at least ten seconds",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -9 2; flight -9 stop web web0 2\nwish: deleted",
        "events:\nwake: 1",
    ),
];

#[test]
fn grace_only_shrinks_and_spent_time_is_spent() {
    check(GRACE_ONLY_SHRINKS_AND_SPENT_TIME_IS_SPENT);
}

const ACTIONS_IN_FLIGHT_WHEN_TERMINATION_BEGINS: &[PlanCaseRow] = &[
    (
        "a start that has made nothing yet",
        "pod: Always app:web\nseen: s0\nmemory: flight -1 start web 0\nwish: deleted",
        "do:\nstage: Ending",
    ),
    (
        "a start whose postStart hook runs",
        "pod: Always app:web(post)\nseen: s0; web#0 running made=0\nmemory: flight -1 start web 0\nwish: deleted",
        "do: stop web0 30 PodEnds replaces",
    ),
    (
        "a start whose container died while its postStart hook runs",
        "pod: Always app:web(post)\nseen: s0; web#0 exited 1\nmemory: flight -1 start web 0\nwish: deleted",
        "do: stop web0 0 PodEnds replaces\nstage: Ending\nevents: ",
    ),
    (
        "which has no preStop hook to run",
        "pod: Always app:web(post,pre)\nseen: s0; web#0 exited 1\nmemory: flight -1 start web 0\nwish: deleted",
        "do: stop web0 0 PodEnds replaces",
    ),
    (
        "and is over after that",
        "pod: Always app:web(post)\nseen: s0; web#0 exited 1\nmemory: ending -1 30; stopping web web0 -1; stopdone web web0 -1\nwish: deleted",
        "do: stop-sandbox s0",
    ),
    (
        "a sidecar that died so waits for no turn",
        "pod: Always side:a(post) app:web\nseen: s0; a#0 exited 1; web#0 running\nmemory: flight -1 start a 0\nwish: deleted",
        "do: stop a0 0 PodEnds replaces; stop web0 30 PodEnds",
    ),
    (
        "a start that has no hook ends by itself",
        "pod: Always app:web\nseen: s0; web#0 exited 1\nmemory: flight -1 start web 0\nwish: deleted",
        "do:\nstage: Ending",
    ),
    (
        "a start after one that died",
        "pod: Always app:web(post)\nseen: s0; web#0 exited 1\nmemory: flight -1 start web 1\nwish: deleted",
        "do:\nstage: Ending",
    ),
    (
        "a start that was made and not started",
        "pod: Always app:web(post)\nseen: s0; web#0 created\nmemory: flight -1 start web 0\nwish: deleted",
        "do:\nstage: Ending",
    ),
    (
        "a start, and an older one that runs",
        "pod: Always app:web\nseen: s0; web#0 running made=-50\nmemory: flight -1 start web 1\nwish: deleted",
        "do:",
    ),
    (
        "a sandbox",
        "pod: Always app:web\nmemory: flight -1 sandbox 0\nwish: deleted",
        "do:\nstage: Ending\nwhy: its sandbox is being stopped",
    ),
    (
        "preparation",
        "pod: Always app:web\nmemory: flight -1 prepare\nwish: deleted",
        "do:\nstage: Ended",
    ),
];

#[test]
fn actions_in_flight_when_termination_begins() {
    check(ACTIONS_IN_FLIGHT_WHEN_TERMINATION_BEGINS);
}

const SIDECARS_GO_LAST_IN_REVERSE_ORDER: &[PlanCaseRow] = &[
    (
        "they wait for regular containers",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 running; b#0 running; web#0 running\nwish: deleted",
        "do: stop web0 30 PodEnds\nwake: 30",
    ),
    (
        "the last goes first",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 running; b#0 running; web#0 exited 0\nmemory: ending -10 30\nwish: deleted",
        "do: stop b0 20 PodEnds\nwake: 20",
    ),
    (
        "then the one before it",
        "pod: Always side:a side:b app:web\nseen: s0; a#0 running; b#0 exited 0; web#0 exited 0\nmemory: ending -10 30\nwish: deleted",
        "do: stop a0 20 PodEnds",
    ),
    (
        "an init container that ends is no sidecar",
        "pod: Always side:a init:b\nseen: s0; a#0 running; b#0 running\nwish: deleted",
        "do: stop a0 30 PodEnds; stop b0 30 PodEnds",
    ),
    (
        "when the grace is over they wait no longer",
        "pod: Always side:a app:web\nseen: s0; a#0 running; web#0 running\nmemory: ending -30 30; flight -30 stop web web0 30\nwish: deleted",
        "do: stop a0 0 PodEnds",
    ),
    (
        "their hooks run with the others'",
        "pod: Always side:a(pre) app:web(pre)\nseen: s0; a#0 running; web#0 running\nwish: deleted",
        "do: hook a0 30; stop web0 30 PodEnds with-hook",
    ),
    (
        "once",
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 running\nmemory: ending -5 30; hooked a a0 25; flight -5 stop web web0 30\nwish: deleted",
        "do:",
    ),
    (
        "and not again at the turn",
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 exited 0\nmemory: ending -5 30; hooked a a0 25\nwish: deleted",
        "do: stop a0 25 PodEnds",
    ),
    (
        "a hook in flight is waited for",
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 exited 0\nmemory: ending -5 30; stopping a a0 25; flight -5 hook a a0 30\nwish: deleted",
        "do:\nwake: 25",
    ),
    (
        "until the grace is over",
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 exited 0\nmemory: ending -30 30; stopping a a0 0; flight -30 hook a a0 30\nwish: deleted",
        "do: stop a0 0 PodEnds replaces",
    ),
    (
        "or a shorter one comes",
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 exited 0\nmemory: ending -5 30; stopping a a0 25; flight -5 hook a a0 30\nwish: deleted grace=3",
        "do: stop a0 3 PodEnds with-hook replaces",
    ),
    (
        "but not of another container of that name",
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; a#1 running; web#0 exited 0\nmemory: ending -30 30; flight -30 hook a a0 30\nwish: deleted",
        "do: stop a0 0 PodEnds replaces",
    ),
    (
        "a regular container that is being started counts",
        "pod: Always side:a app:web\nseen: s0; a#0 running\nmemory: flight -1 start web 0\nwish: deleted",
        "do:",
    ),
    (
        "an ephemeral one does not",
        "pod: Always side:a app:web eph:d\nseen: s0; a#0 running; web#0 exited 0; d#0 running\nwish: deleted",
        "do: stop a0 30 PodEnds; stop d0 30 PodEnds",
    ),
];

#[test]
fn sidecars_go_last_in_reverse_order() {
    check(SIDECARS_GO_LAST_IN_REVERSE_ORDER);
}

const PODS_THAT_END_BY_THEMSELVES: &[PlanCaseRow] = &[
    (
        "succeeded: what is left is cleaned, records stay",
        "pod: Never app:job\nseen: s0; job#0 exited 0",
        "do: stop-sandbox s0\nphase: Succeeded\nstage: Ending",
    ),
    (
        "then",
        "pod: Never app:job\nseen: s0 dead; job#0 exited 0\nmemory: stopped s0; verdict Succeeded",
        "do: cleanup\nstage: Ended",
    ),
    (
        "then nothing",
        "pod: Never app:job\nseen: s0 dead; job#0 exited 0\nmemory: stopped s0; verdict Succeeded; cleaned some",
        "do:\nstage: Finished\nphase: Succeeded\nwhy: none",
    ),
    (
        "until it is unwished",
        "pod: Never app:job\nseen: s0 dead; job#0 exited 0\nmemory: stopped s0; verdict Succeeded; cleaned some\nwish: removed",
        "do: cleanup all; remove job0\nstage: Ended",
    ),
    (
        "a failed one says so",
        "pod: Never app:job\nseen: s0 dead; job#0 exited 3\nmemory: stopped s0; verdict Failed; cleaned some",
        "why: it has failed: container job exited with 3 (Error)\nstage: Finished",
    ),
    (
        "sidecars are stopped when the others are done",
        "pod: Never side:a app:job\nseen: s0; a#0 running; job#0 exited 0",
        "do: stop a0 30 PodEnds\nphase: Running\nstage: Running",
    ),
    (
        "in reverse order",
        "pod: Never side:a side:b app:job\nseen: s0; a#0 running; b#0 running; job#0 exited 0",
        "do: stop b0 30 PodEnds",
    ),
    (
        "the last of them has ended, the one before it has not",
        "pod: Never side:a side:b app:job\nseen: s0; a#0 running; b#0 exited 137; job#0 exited 0\nmemory: clearing -2 30",
        "do: stop a0 28 PodEnds\nphase: Running",
    ),
    (
        "grace spent on that is spent",
        "pod: Never side:a app:job\nseen: s0; a#0 running; job#0 exited 0\nmemory: clearing -12 30",
        "do: stop a0 18 PodEnds",
    ),
    (
        "a sidecar that died is not started again then",
        "pod: Never side:a app:job\nseen: s0; a#0 exited 1; job#0 exited 0",
        "do: stop-sandbox s0\nphase: Succeeded",
    ),
    (
        "past its deadline",
        "pod: Always deadline=100 app:web\nseen: s0; web#0 running\nmemory: since -100",
        "do: stop web0 30 PodEnds\nphase: Failed DeadlineExceeded Pod was active on the node longer than the specified deadline\nevents: ~Normal DeadlineExceeded pod Pod was active on the node longer than the specified deadline",
    ),
    (
        "just before its deadline",
        "pod: Always deadline=100 app:web\nseen: s0; web#0 running\nmemory: since -99",
        "do:\nphase: Running\nwake: 1",
    ),
    (
        "a deadline wakes nobody once the pod ends",
        "pod: Always deadline=300 app:web\nmemory: since -200; cleaned all\nwish: deleted",
        "do:\nwake: none\nstage: Finished",
    ),
    (
        "nothing starts past the deadline",
        "pod: Always deadline=100 app:web\nseen: s0; web#0 exited 1\nmemory: since -100",
        "do: stop-sandbox s0",
    ),
    (
        "rejected",
        "pod: Always app:web\nfacts: rejected OutOfcpu Node didn't have enough resource",
        "do: cleanup\nphase: Failed OutOfcpu Pod was rejected: Node didn't have enough resource\nevents: Warning OutOfcpu pod Node didn't have enough resource",
    ),
    (
        "rejected while it runs",
        "pod: Always app:web\nseen: s0; web#0 running\nfacts: rejected NodeAffinity no match",
        "do: stop web0 30 PodEnds",
    ),
    (
        "evicted",
        "pod: Always app:web\nseen: s0; web#0 running\nwish: evicted grace=0 disruption=TerminationByKubelet",
        "do: stop web0 1 PodEnds\nphase: Failed Evicted the node was low on memory\nDisruptionTarget: True TerminationByKubelet the node took it back",
    ),
    (
        "evicted by an earlier agent: it stays so, and its condition with it",
        "pod: Always app:web\nseen: s0 dead\nmemory: stopped s0; cleaned some; verdict Failed Preempting; disrupted TerminationByKubelet for another",
        "phase: Failed Preempting\nDisruptionTarget: True TerminationByKubelet for another\nstage: Finished",
    ),
    (
        "evicted: records go, the sandbox and the folders stay",
        "pod: Always app:web\nseen: s0 dead; web#0 exited 137\nmemory: stopped s0\nwish: evicted",
        "do: cleanup; remove web0",
    ),
    (
        "evicted and cleaned",
        "pod: Always app:web\nseen: s0 dead\nmemory: stopped s0; cleaned some\nwish: evicted",
        "do:\nstage: Finished",
    ),
    (
        "it ends once and for all, even if it is wished for again",
        "pod: Always app:web\nseen: s0; web#0 exited 1\nmemory: ending -5 30",
        "do: stop-sandbox s0",
    ),
    (
        "so with a verdict",
        "pod: Always app:web\nseen: s0; web#0 exited 1\nmemory: verdict Failed",
        "do: stop-sandbox s0\nphase: Failed",
    ),
];

#[test]
fn pods_that_end_by_themselves() {
    check(PODS_THAT_END_BY_THEMSELVES);
}
