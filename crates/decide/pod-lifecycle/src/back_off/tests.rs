//! Restart back-off.

use crate::testing::{PlanCaseRow, check};

const BACK_OFF_DECIDES_WHEN_A_CONTAINER_RESTARTS: &[PlanCaseRow] = &[
    (
        "the first restart is at once",
        "pod: Always app:web\nseen: s0; web#0 exited 1 done=-1",
        "do: start web#1 in s0\nweb: ended 1 Error r0\nwake: none",
    ),
    (
        "so after success",
        "pod: Always app:web\nseen: s0; web#0 exited 0 done=-1",
        "do: start web#1 in s0",
    ),
    (
        "the second waits, counted from the end",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=-3\nmemory: backoff web 10 -20",
        "do:\nwake: 7\nweb: waiting CrashLoopBackOff back-off 10s restarting failed container=web pod=p_ns(u1) r1\nweb.last: ended 1 Error",
    ),
    (
        "also after success",
        "pod: Always app:web\nseen: s0; web#1 exited 0 done=-3\nmemory: backoff web 10 -20",
        "do:\nwake: 7\nweb: waiting CrashLoopBackOff back-off 10s restarting failed container=web pod=p_ns(u1) r1",
    ),
    (
        "until the delay is over",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=-10\nmemory: backoff web 10 -20",
        "do: start web#2 in s0\nwake: none",
    ),
    (
        "a moment before it is over",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=-9\nmemory: backoff web 10 -20",
        "do:\nwake: 1",
    ),
    (
        "forgotten 600 s after the last start",
        "pod: Always app:web\nseen: s0; web#5 exited 1 done=-1\nmemory: backoff web 300 -601",
        "do: start web#6 in s0",
    ),
    (
        "not before that",
        "pod: Always app:web\nseen: s0; web#5 exited 1 done=-1\nmemory: backoff web 300 -600",
        "do:\nwake: 0.000",
    ),
    (
        "a wait is cut where it would be forgotten",
        "pod: Always app:web\nseen: s0; web#5 exited 1 done=-10\nmemory: backoff web 300 -400",
        "do:\nwake: 200.000",
    ),
    (
        "forgotten after 600 s with a small cap too",
        "pod: Always app:web\nseen: s0; web#5 exited 1 done=-0\nmemory: backoff web 5 -599\nfacts: cap 5",
        "do:\nwake: 1.000",
    ),
    (
        "a clock that is a little ahead is believed",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=5\nmemory: backoff web 10 -20",
        "do:\nwake: 15",
    ),
    (
        "an end that lies further ahead is not: the delay counts from the last start",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=6\nmemory: backoff web 10 -20",
        "do: start web#2 in s0",
    ),
    (
        "another image begins anew",
        "pod: Always app:web(image=new)\nseen: s0; web#3 exited 1 done=-1\nmemory: oldbackoff web 300 -10",
        "do: start web#4 in s0",
    ),
    (
        "one waits, the next goes on",
        "pod: Always app:web app:log\nseen: s0; web#1 exited 1 done=-3\nmemory: backoff web 10 -20",
        "do: start log#0 in s0\nimages: log#0",
    ),
    (
        "an init container that waits holds up everything",
        "pod: Always init:one app:web\nseen: s0; one#1 exited 1 done=-3\nmemory: backoff one 10 -20",
        "do:\nwake: 7\none: ~waiting CrashLoopBackOff back-off 10s restarting failed container=one",
    ),
    (
        "minutes are written as Go writes them",
        "pod: Always app:web\nseen: s0; web#6 exited 1 done=-3\nmemory: backoff web 300 -20",
        "web: waiting CrashLoopBackOff back-off 5m0s restarting failed container=web pod=p_ns(u1) r6",
    ),
    (
        "and so are mixed ones",
        "pod: Always app:web\nseen: s0; web#4 exited 1 done=-3\nmemory: backoff web 80 -20",
        "web: ~back-off 1m20s restarting",
    ),
    (
        "the event is told",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=-3\nmemory: backoff web 10 -20",
        "events: Warning BackOff spec.containers{web} Back-off restarting failed container web in pod p_ns(u1)",
    ),
    (
        "nothing waits that does not come back",
        "pod: OnFailure app:web app:log\nseen: s0; web#1 exited 0 done=-3; log#0 running\nmemory: backoff web 10 -20",
        "do:\nweb: ended 0 Completed r1",
    ),
];

#[test]
fn back_off_decides_when_a_container_restarts() {
    check(BACK_OFF_DECIDES_WHEN_A_CONTAINER_RESTARTS);
}

const A_CONTAINER_STOPPED_BY_THE_AGENT_KEEPS_THE_PREVIOUS_BACK_OFF: &[PlanCaseRow] = &[
    (
        "no one before: at once",
        "pod: Always app:web(live)\nseen: s0; web#0 exited 137 done=-1\nmemory: killed web web0; backoff web 10 -3",
        "do: start web#1 in s0",
    ),
    (
        "it ran longer than the delay: at once",
        "pod: Always app:web(live)\nseen: s0; web#0 exited 1 done=-50; web#1 exited 137 done=-1\nmemory: killed web web1; backoff web 20 -49",
        "do: start web#2 in s0",
    ),
    (
        "it did not: the usual wait",
        "pod: Always app:web(live)\nseen: s0; web#0 exited 1 done=-15; web#1 exited 137 done=-1\nmemory: killed web web1; backoff web 20 -14",
        "do:\nwake: 19",
    ),
    (
        "one that was stopped earlier does not count",
        "pod: Always app:web(live)\nseen: s0; web#0 exited 1 done=-50; web#1 exited 137 done=-1\nmemory: killed web web0; backoff web 20 -49",
        "do:\nwake: 19",
    ),
];

#[test]
fn a_container_stopped_by_the_agent_keeps_the_previous_back_off() {
    check(A_CONTAINER_STOPPED_BY_THE_AGENT_KEEPS_THE_PREVIOUS_BACK_OFF);
}

/// Restarts in a row: each entry is how long the container waits before its start.
#[test]
fn delays_double_up_to_the_cap() {
    use super::*;
    use crate::testing::{PlanCase, at};

    for (cap, expected) in [
        (300, vec![0, 10, 20, 40, 80, 160, 300, 300]),
        (30, vec![0, 10, 20, 30, 30]),
        (1, vec![0, 1, 1, 1]),
    ] {
        let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 exited 1 done=0");
        let settings = PodLifecycleSettings {
            max_restart_period: Duration::from_secs(cap),
            ..PodLifecycleSettings::default()
        };
        let container = case.desired.pod.spec.containers[0].clone();
        let mut now = at(0);
        let mut waited = Vec::new();
        for _ in &expected {
            let finished = now;
            case.observed.containers[0].record.finished_at = finished.nanos();
            loop {
                let containers_by_name = ContainersByName::new(&case.observed);
                let memory = case.memory.container("web");
                match start_timing(&container, &containers_by_name, memory, &settings, now) {
                    StartTiming::Wait { until, .. } => {
                        assert!(until > now, "waits for what is over");
                        now = until;
                    }
                    StartTiming::Now(next) => {
                        let memory =
                            case.memory.persisted.containers.entry("web".into()).or_default();
                        memory.back_off = next;
                        break;
                    }
                }
            }
            waited.push(between(finished, now).as_secs());
        }
        assert_eq!(waited, expected, "cap {cap}");
    }
}

#[test]
fn a_crash_loop_continues_after_an_agent_restart() {
    use super::*;
    use crate::testing::{at, pods};

    let pod = pods::read("Always app:web");
    let container = &pod.spec.containers[0];
    for (restarts, delay) in [
        (0, None),
        (1, Some(10)),
        (2, Some(20)),
        (5, Some(160)),
        (6, Some(300)),
        (4_000_000, Some(300)),
    ] {
        let found = RestartBackOff::reconstructed(
            container,
            restarts,
            at(-5),
            &PodLifecycleSettings::default(),
        );
        assert_eq!(found.map(|found| found.delay_nanos / 1_000_000_000), delay, "{restarts}");
    }
    let short = PodLifecycleSettings {
        base_restart_period: Duration::from_secs(1),
        max_restart_period: Duration::from_secs(3),
        ..PodLifecycleSettings::default()
    };
    for (restarts, delay) in [(1, 1), (2, 2), (3, 3), (9, 3)] {
        let found = RestartBackOff::reconstructed(container, restarts, at(-5), &short).unwrap();
        assert_eq!(found.delay_nanos / 1_000_000_000, delay, "as configured: {restarts}");
    }
}

#[test]
fn a_back_off_is_keyed_by_image_and_resources() {
    use super::key;
    use crate::testing::pods;
    use pod_model::Quantity;

    let pod = pods::read("Always app:web");
    let plain = &pod.spec.containers[0];
    let mut other = plain.clone();
    other.command = vec!["sh".into()];
    assert_eq!(key(plain), key(&other), "a command does not count");
    other.image = "new".into();
    assert_ne!(key(plain), key(&other));
    // Persisted across agents: the usual hash (FNV-1a), each part terminated by a slash.
    assert_eq!(super::fnv64(&["a", "bc"]), 0x9df1_25bc_425b_bc0b);
    let mut larger = plain.clone();
    larger.resources.limits.insert("cpu", Quantity::parse("1").unwrap());
    assert_ne!(key(plain), key(&larger));
}
