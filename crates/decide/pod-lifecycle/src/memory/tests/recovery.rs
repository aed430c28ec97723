//! An agent that starts: with saved state, without it, with garbage.

use crate::input::{PodInput, ProbeKind, ProbeResult, SaveUrgency};
use crate::memory::PodMemory;
use crate::oom_kills::{OomKillRecord, OomKillRecords};
use crate::testing::{PlanCase, at};

/// The case as a new agent sees it, with what the old one saved.
fn restarted(case: &PlanCase, saved: Option<&[u8]>) -> PlanCase {
    let memory =
        PodMemory::recover(&case.desired, &case.observed, saved, &case.facts.settings, case.now);
    PlanCase { memory, ..case.clone() }
}

/// Plans and executes the plan.
fn follow(case: &mut PlanCase) {
    let plan = case.plan();
    let desired = case.desired.clone();
    case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
}

#[test]
fn a_recovered_memory_gives_the_same_status_and_plan() {
    for text in [
        "pod: Always app:web\nseen: s0; web#0 running",
        "pod: Always app:web(ready,startup)\nseen: s0; web#0 running\nmemory: startup web web0; ready web web0",
        "pod: Always app:web\nseen: s0; web#1 exited 1 done=-3\nmemory: backoff web 40 -9",
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending -12 30\nwish: deleted",
        "pod: Never app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0; cleaned some",
        "pod: Always app:web\nseen: s0\nmemory: was web exited 4 9; before web 3 1",
        "pod: Always app:web(live)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
        "pod: Always app:web(post)\nseen: s0; web#0 running\nmemory: hookfailed web web0",
        "pod: Always app:web\nseen: s0\nmemory: trouble web CreateContainerError 7",
        "pod: Always deadline=300 app:web\nseen: s0; web#0 running\nmemory: since -250",
        "pod: Never app:a(policy=Never,in3=RestartAllContainers)\nseen: s0; a#0 exited 3",
        "pod: Always side:a app:web\nseen: s0; a#0 running; web#0 exited 0\nmemory: clearing -5 30",
    ] {
        let mut case = PlanCase::read(text);
        follow(&mut case);
        let mut again = restarted(&case, Some(&case.memory.to_saved()));
        again.memory.prepared = true;
        case.now = at(3);
        again.now = at(3);
        let (before, after) = (case.plan(), again.plan());
        assert_eq!(after.status, before.status, "{text}");
        assert_eq!(after.actions, before.actions, "{text}");
        assert_eq!(after.wake_at, before.wake_at, "{text}");
    }
}

#[test]
fn readiness_does_not_flap() {
    let mut case = PlanCase::read("pod: Always app:web(ready)\nseen: s0; web#0 running");
    let desired = case.desired.clone();
    let result = PodInput::Probe {
        container: "web".to_owned(),
        container_id: "web0".to_owned(),
        kind: ProbeKind::Readiness,
        result: ProbeResult::Success,
    };
    case.memory.apply_input(&desired, &result, case.now);
    follow(&mut case);
    let again = restarted(&case, Some(&case.memory.to_saved()));
    assert!(again.plan().status.container("web").unwrap().ready);
    assert!(!restarted(&case, None).plan().status.container("web").unwrap().ready);
}

#[test]
fn an_unreadable_record_is_ignored() {
    let case = PlanCase::read("pod: Always app:web\nseen: s0; web#2 running");
    let nothing = restarted(&case, None).memory;
    for bytes in [
        &b""[..],
        b"nonsense",
        b"{}",
        b"[1]",
        b"{\"version\":1}",
        b"{\"version\":2,\"pod\":{\"startTime\":5}}",
        b"{\"version\":1,\"pod\":{\"containers\":7}}",
        b"{\"version\":1,\"pod\":{\"startTime\":\"x\"}}",
    ] {
        let memory = restarted(&case, Some(bytes)).memory;
        assert_eq!(memory, nothing, "{:?}", String::from_utf8_lossy(bytes));
    }
    // Fields added by a later version are not garbage.
    let later = b"{\"version\":1,\"pod\":{\"startTime\":5,\"later\":true}}";
    assert_eq!(restarted(&case, Some(later)).memory.persisted.start_time, Some(5));
}

#[test]
fn pods_continue_after_an_agent_restart() {
    let case = PlanCase::read(
        "pod: Always init:one app:web app:log\nseen: s0; one#0 exited 0; web#3 running; log#0 running",
    );
    let again = restarted(&case, None);
    let plan = again.plan();
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    assert_eq!(plan.status.container("web").unwrap().restart_count, 3);
    assert_eq!(plan.waiting_on, None);
    assert_eq!(again.memory.container("web").unwrap().highest, Some(3));
    // A count does not fall when the runtime forgets it before the first plan.
    let mut forgotten = again.clone();
    forgotten.observed.containers.retain(|each| each.record.name != "web");
    assert_eq!(forgotten.plan().status.container("web").unwrap().restart_count, 3);
    // Its start is that of its sandbox.
    let created = case.observed.sandboxes[0].created_at;
    assert_eq!(again.memory.persisted.start_time, Some(created));
}

#[test]
fn a_crash_loop_keeps_its_delay_after_an_agent_restart() {
    let case = PlanCase::read("pod: Always app:web\nseen: s0; web#3 exited 1 started=-20 done=-5");
    let mut again = restarted(&case, None);
    again.memory.prepared = true;
    let plan = again.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.wake_at, Some(at(35)), "40 s after the end");
    // One that ran for long is started at once.
    let case = PlanCase::read("pod: Always app:web\nseen: s0; web#3 exited 1 started=-700 done=-5");
    let mut again = restarted(&case, None);
    again.memory.prepared = true;
    again.supply_images();
    assert_eq!(again.plan().actions.len(), 1);
}

#[test]
fn a_startup_probe_that_must_have_passed_has() {
    for (started, passed) in
        [(-10, false), (-33, false), (-34, true), (-500, true), (-1_000_000, false)]
    {
        let text =
            format!("pod: Always app:web(startup)\nseen: s0; web#0 running started={started}");
        let again = restarted(&PlanCase::read(&text), None);
        let found = again.memory.container("web").unwrap().startup_passed.is_some();
        assert_eq!(found, passed, "{started}");
    }
    // Nor does one that has exited show anything.
    let case = PlanCase::read("pod: Always app:web(startup)\nseen: s0; web#0 exited 0");
    assert_eq!(restarted(&case, None).memory.container("web").unwrap().startup_passed, None);
}

#[test]
fn a_phase_that_the_api_server_has_seen_is_final() {
    let case = PlanCase::read("pod: Always phase=Succeeded app:web\nseen: s0; web#0 exited 1");
    let plan = restarted(&case, None).plan();
    assert_eq!(plan.status.phase.as_str(), "Succeeded");
    let case = PlanCase::read("pod: Always phase=Running app:web\nseen: s0; web#0 running");
    assert_eq!(restarted(&case, None).plan().status.phase.as_str(), "Running");
}

#[test]
fn milestones_are_not_repeated_after_recovery() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    case = restarted(&case, None);
    let plan = case.plan();
    let desired = case.desired.clone();
    let emitted = case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
    assert!(emitted.marks.is_empty(), "{:?}", emitted.marks);
}

#[test]
fn a_sandbox_from_the_future_gives_no_start_in_the_future() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    case.observed.sandboxes[0].created_at = at(500).nanos();
    assert_eq!(restarted(&case, None).memory.persisted.start_time, Some(at(0).nanos()));
}

/// A clock that was set back by an hour: saved times are in the future, and delays that began then
/// begin again now instead of lasting an hour.
#[test]
fn times_that_lie_ahead_are_brought_back() {
    let mut case = PlanCase::read(
        "pod: Always app:web app:log\nseen: s0; web#1 exited 1 started=3580 done=3590; log#0 running\n\
         memory: backoff web 40 3580",
    );
    case.memory.persisted.start_time = Some(at(3000).nanos());
    let mut again = restarted(&case, Some(&case.memory.to_saved()));
    again.memory.prepared = true;
    assert_eq!(again.memory.persisted.start_time, Some(at(0).nanos()));
    let plan = again.plan();
    assert_eq!((plan.actions.len(), plan.wake_at), (0, Some(at(40))), "40 s from now");
    again.now = at(41);
    again.supply_images();
    assert_eq!(again.plan().actions.len(), 1, "and not after an hour");

    let mut case = PlanCase::read(
        "pod: Always app:web\nseen: s0; web#0 running\nmemory: ending 3600 20\nwish: deleted",
    );
    let again = restarted(&case, Some(&case.memory.to_saved()));
    let termination = again.memory.persisted.termination.unwrap();
    assert_eq!((termination.since, termination.deadline), (at(0).nanos(), at(20).nanos()));
    case.now = at(3605);
    let later =
        restarted(&case, Some(&case.memory.to_saved())).memory.persisted.termination.unwrap();
    assert_eq!(later.since, at(3600).nanos(), "what lies behind stays");
}

/// A stop that a clock set back would leave hanging ends with the longest grace that there can be.
#[test]
fn a_recovered_stop_lasts_at_most_the_longest_grace() {
    for (pod, saved, deadline) in [
        ("Always app:web", 3600, 30),
        ("Always app:web", 20, 20),
        ("Always grace=90 app:web", 3600, 90),
        ("Always app:web(live=3/500)", 3600, 500),
        ("Always app:web(startup=3/400)", 3600, 400),
        ("Always grace=90 app:web(live=3/5)", 3600, 90),
    ] {
        let text = format!(
            "pod: {pod}\nseen: s0; web#0 running changed\nmemory: stopping web web0 {saved}"
        );
        let case = PlanCase::read(&text);
        let again = restarted(&case, Some(&case.memory.to_saved()));
        let stop = again.memory.container("web").unwrap().stop.clone().unwrap();
        assert_eq!(stop.deadline, at(deadline).nanos(), "{pod} {saved}");
    }
}

/// The reported kills of one container, given by their order or as counts.
fn reported_kills(case: &mut PlanCase, seen: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let desired = case.desired.clone();
    let mut emitted = Vec::new();
    for (order, unnamed) in seen {
        let mut observed = case.observed.clone();
        for container in observed.containers.iter_mut() {
            let note = OomKillRecord { order: *order, unnamed: *unnamed, ..Default::default() };
            container.oom_kills = OomKillRecords::default();
            assert!(container.oom_kills.add(note, false));
        }
        let effects = case.memory.apply_input(&desired, &PodInput::Observed(&observed), case.now);
        emitted.extend(effects.events.iter().map(|_| (*order, *unnamed)));
        assert_eq!(
            effects.save == SaveUrgency::Not,
            effects.events.is_empty(),
            "what is told is remembered"
        );
    }
    emitted
}

#[test]
fn a_reported_oom_kill_is_not_reported_after_an_agent_restart() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    assert_eq!(reported_kills(&mut case, &[(3, 0), (8, 0), (8, 0)]), [(3, 0), (8, 0)]);
    // The log is read from its beginning, and goes on.
    let mut again = restarted(&case, Some(&case.memory.to_saved()));
    assert_eq!(reported_kills(&mut again, &[(3, 0), (8, 0), (9, 0)]), [(9, 0)]);
    // Without the log they are counted, and the counts apart from what was named.
    let mut counted = restarted(&again, Some(&again.memory.to_saved()));
    assert_eq!(reported_kills(&mut counted, &[(0, 2), (0, 2), (0, 3)]), [(0, 2), (0, 3)]);
    let mut last = restarted(&counted, Some(&counted.memory.to_saved()));
    assert_eq!(reported_kills(&mut last, &[(0, 3), (9, 0), (0, 4)]), [(0, 4)]);
    // Without saved state nothing counts as reported.
    let mut lost = restarted(&case, None);
    assert_eq!(reported_kills(&mut lost, &[(8, 0)]), [(8, 0)]);
}

#[test]
fn oom_kills_of_two_attempts_are_not_reported_alternately() {
    let text = "pod: Always app:web\nseen: s0; web#1 running oom=200; web#0 exited 137 oom=200";
    let mut case = PlanCase::read(text);
    let (desired, observed) = (case.desired.clone(), case.observed.clone());
    for wanted in [2, 0, 0] {
        let emitted = case.memory.apply_input(&desired, &PodInput::Observed(&observed), case.now);
        assert_eq!(emitted.events.len(), wanted);
    }
    // What the runtime has forgotten is not remembered either.
    let saved = String::from_utf8(case.memory.to_saved()).unwrap();
    assert!(saved.contains("killsTold"), "{saved}");
    let gone = PlanCase::read("pod: Always app:web\nseen: s0").observed;
    case.memory.apply_input(&desired, &PodInput::Observed(&gone), case.now);
    let saved = String::from_utf8(case.memory.to_saved()).unwrap();
    assert!(!saved.contains("killsTold"), "{saved}");
}

/// By case: whether it terminates because it was removed, without and with a record that says so.
#[test]
fn a_removal_is_distinguished_from_a_final_termination() {
    for (text, without, with) in [
        ("pod: Always app:web\nseen: s0; web#0 running", false, false),
        ("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted", true, true),
        ("pod: Always app:web\nseen: s0; web#0 running\nwish: evicted", false, true),
        ("pod: Never app:web\nseen: s0; web#0 running\nwish: deleted", true, true),
        // Removed, with a terminal phase since: only the record distinguishes it from one that
        // ended by itself.
        ("pod: Never app:web\nseen: s0; web#0 exited 0\nwish: deleted", false, true),
        ("pod: Never app:web\nseen: s0; web#0 exited 0", false, true),
        ("pod: Always deadline=9 app:web\nseen: s0; web#0 running\nmemory: since -50", false, true),
    ] {
        let mut case = PlanCase::read(text);
        follow(&mut case);
        let saved = case.memory.to_saved();
        let emitted =
            [false, true].map(|written| PodMemory::is_terminating_by_removal(&saved, written));
        assert_eq!(emitted, [without, with], "{text}");
    }
    assert!(!PodMemory::is_terminating_by_removal(b"nonsense", true));
}

#[test]
fn a_rejection_is_distinguished_from_other_terminations() {
    for (text, expected) in [
        ("pod: Always app:web\nseen:\nfacts: rejected OutOfpods no room", true),
        ("pod: Always deadline=5 app:web\nseen:\nmemory: since -9", false),
        ("pod: Never app:web\nseen: s0 dead; web#0 exited 1", false),
        ("pod: Always app:web\nseen: s0; web#0 running", false),
    ] {
        let mut case = PlanCase::read(text);
        follow(&mut case);
        assert_eq!(PodMemory::was_rejected(&case.memory.to_saved()), expected, "{text}");
    }
    assert!(!PodMemory::was_rejected(b"{"));
}
