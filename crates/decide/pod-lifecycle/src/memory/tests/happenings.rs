//! Actions that begin and end, and the events about them.

use crate::action::{Action, ActionKey};
use crate::happening::{Happening, Mark, Outcome, Save, StartFailure, StartStage, Told};
use crate::testing::{Case, at};

use super::{absorb, carry_out, said};

#[test]
fn events_of_what_was_done() {
    let failure = |stage, id: Option<&str>| {
        Outcome::ContainerStarted(Err(StartFailure {
            stage,
            message: "the password is 1234".to_owned(),
            id: id.map(str::to_owned),
        }))
    };
    let start = "pod: Always app:web(post)\nseen: s0";
    let stop = "pod: Always app:web(pre)\nseen: s0; web#0 running\nwish: deleted";
    let created = "Normal Created spec.containers{web} Container created";
    let started = "Normal Started spec.containers{web} Container started";
    let error = "Warning Failed spec.containers{web} Error: the password is 1234";
    let rows: Vec<(&str, Outcome, Vec<&str>)> = vec![
        (start, Outcome::ContainerStarted(Ok("w".to_owned())), vec![created, started]),
        (start, failure(StartStage::Config, None), vec![error]),
        (start, failure(StartStage::Create, None), vec![error]),
        (start, failure(StartStage::Start, Some("w")), vec![created, error]),
        (
            start,
            failure(StartStage::PostStart, Some("w")),
            vec![
                created,
                started,
                "Warning FailedPostStartHook spec.containers{web} PostStartHook failed",
            ],
        ),
        (stop, Outcome::ContainerStopped { hook_failed: false, result: Ok(()) }, vec![]),
        (
            stop,
            Outcome::ContainerStopped { hook_failed: true, result: Ok(()) },
            vec!["Warning FailedPreStopHook spec.containers{web} PreStopHook failed"],
        ),
        (
            stop,
            Outcome::ContainerStopped { hook_failed: false, result: Err("busy".to_owned()) },
            vec!["Warning FailedKillPod pod error killing pod: busy"],
        ),
        (
            "pod: Always app:web",
            Outcome::SandboxRun(Err("no address".to_owned())),
            vec!["Warning FailedCreatePodSandBox pod Failed to create pod sandbox: no address"],
        ),
        ("pod: Always app:web", Outcome::SandboxRun(Ok("s0".to_owned())), vec![]),
        (
            "pod: Always app:web\nmemory: unprepared",
            Outcome::Done(Err("no cgroup".to_owned())),
            vec![
                "Warning FailedCreatePodContainer pod unable to ensure pod container exists: no cgroup",
            ],
        ),
        ("pod: Always app:web\nwish: deleted", Outcome::Done(Err("busy".to_owned())), vec![]),
        // The pod continues: it is not the pod that could not be killed.
        (
            "pod: Always app:web\nseen: s0; web#0 running changed",
            Outcome::ContainerStopped { hook_failed: false, result: Err("busy".to_owned()) },
            vec![],
        ),
    ];
    for (text, outcome, expected) in rows {
        let mut case = Case::read(text);
        let told = carry_out(&mut case, outcome.clone());
        assert_eq!(said(&told), expected, "{text} {outcome:?}");
    }
}

#[test]
fn a_sandbox_that_fails_while_the_pod_ends_is_no_news() {
    let mut case = Case::read("pod: Always app:web\nmemory: flight -1 sandbox 0\nwish: deleted");
    let outcome = Outcome::SandboxRun(Err("cancelled".to_owned()));
    let told = absorb(&mut case, &Happening::Ended { key: ActionKey::Sandbox, outcome });
    assert!(told.events.is_empty());
}

#[test]
fn what_a_failed_start_leaves() {
    for (stage, reason, waits) in [
        (StartStage::Config, "CreateContainerConfigError", true),
        (StartStage::Create, "CreateContainerError", true),
        (StartStage::Start, "RunContainerError", true),
        (StartStage::PostStart, "PostStartHookError", false),
    ] {
        let mut case = Case::read("pod: Always app:web\nseen: s0");
        let failure = StartFailure { stage, message: "m".to_owned(), id: Some("w".to_owned()) };
        carry_out(&mut case, Outcome::ContainerStarted(Err(failure)));
        let memory = case.memory.container("web").unwrap();
        let trouble = memory.start_failure.as_ref().unwrap();
        assert_eq!(trouble.reason, reason);
        let retry = trouble.retry_at.map(|retry| (retry - at(0).nanos()) / 1_000_000_000);
        assert_eq!(retry.is_some_and(|retry| (10..15).contains(&retry)), waits, "{retry:?}");
        assert_eq!(memory.post_start_failed.is_some(), stage == StartStage::PostStart);
        // A good start forgets it.
        case.observed.as_of = at(1);
        case.now = at(20);
        carry_out(&mut case, Outcome::ContainerStarted(Ok("w2".to_owned())));
        assert!(case.memory.container("web").unwrap().start_failure.is_none());
    }
}

#[test]
fn failures_hold_back_for_ten_to_fifteen_seconds_and_are_forgotten() {
    let mut case = Case::read("pod: Always app:web");
    carry_out(&mut case, Outcome::SandboxRun(Err("no".to_owned())));
    case.observed.as_of = at(1);
    case.now = at(9);
    let held = case.plan();
    assert!(held.actions.is_empty());
    let wake = held.wake_at.unwrap();
    assert!(wake >= at(10) && wake < at(15), "{wake:?}");
    case.now = wake;
    assert_eq!(case.plan().actions.len(), 1);
    carry_out(&mut case, Outcome::SandboxRun(Ok("s0".to_owned())));
    assert!(case.memory.failures.is_empty());
}

#[test]
fn that_a_container_runs_is_said_while_its_hook_runs() {
    let mut case = Case::read(
        "pod: Always app:web(post)\nseen: s0; web#0 running made=-2\nmemory: flight 0 start web 0",
    );
    // The runtime's clock may be behind the agent's.
    case.now = at(2);
    let observed = case.observed.clone();
    let told = absorb(&mut case, &Happening::Observed(&observed));
    assert_eq!(said(&told).len(), 2);
    assert!(told.marks.iter().any(|(_, mark)| matches!(mark, Mark::Started { .. })));
    // Not again, neither when it is observed nor when the start finishes.
    assert!(absorb(&mut case, &Happening::Observed(&observed)).events.is_empty());
    let key = ActionKey::Container("web".to_owned());
    let outcome = Outcome::ContainerStarted(Ok("web0".to_owned()));
    assert!(absorb(&mut case, &Happening::Ended { key, outcome }).events.is_empty());
}

#[test]
fn one_of_another_number_is_not_the_one_being_started() {
    for seen in ["web#1 running made=1", "web#1 running made=-5", "web#0 created made=1"] {
        let text = format!("pod: Always app:web\nseen: s0; {seen}\nmemory: flight 0 start web 0");
        let mut case = Case::read(&text);
        let observed = case.observed.clone();
        assert!(absorb(&mut case, &Happening::Observed(&observed)).events.is_empty(), "{seen}");
    }
}

#[test]
fn an_echo_changes_nothing_but_asks_for_another_look() {
    let mut case = Case::read("pod: Always app:web\nseen: s0");
    carry_out(&mut case, Outcome::ContainerStarted(Ok("w".to_owned())));
    let before = case.memory.kept.clone();
    let key = ActionKey::Container("web".to_owned());
    let failure = StartFailure { stage: StartStage::Create, message: "late".to_owned(), id: None };
    let outcome = Outcome::ContainerStarted(Err(failure));
    let told = absorb(&mut case, &Happening::Ended { key: key.clone(), outcome });
    assert!(told.events.is_empty());
    assert_eq!(case.memory.kept, before);
    assert_eq!(case.memory.last_act(&key), Some(case.now));
}

#[test]
fn what_must_be_on_disk_before_going_on() {
    let rows = [
        // A normal start does not wait for the disk.
        ("pod: Always app:web\nseen: s0", Save::Soon),
        ("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted", Save::BeforeGoingOn),
        ("pod: Never app:web\nseen: s0; web#0 exited 0", Save::BeforeGoingOn),
        ("pod: Always app:web\nseen: s0; web#0 running changed", Save::Soon),
    ];
    for (text, expected) in rows {
        let mut case = Case::read(text);
        let plan = case.plan();
        let planned = absorb(&mut case, &Happening::Planned(&plan)).save;
        assert_eq!(planned, expected, "{text}");
    }
    // The deadline of a stop is saved before it begins.
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running changed");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    let began = absorb(&mut case, &Happening::Began(&plan.actions[0]));
    assert_eq!(began.save, Save::BeforeGoingOn);
    // So is what is known only from a record, before the record is removed.
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 created");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    assert_eq!(absorb(&mut case, &Happening::Began(&plan.actions[0])).save, Save::BeforeGoingOn);
    // Unless the pod is no longer desired.
    let mut case = Case::read(
        "pod: Always app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0; cleaned all\nwish: deleted",
    );
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    assert!(matches!(plan.actions[0], Action::RemoveContainer { .. }));
    assert_eq!(absorb(&mut case, &Happening::Began(&plan.actions[0])).save, Save::Not);
    // So is the back-off of the next restart, before this one begins.
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 exited 1");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    assert!(matches!(plan.actions[0], Action::StartContainer { attempt: 1, .. }));
    assert_eq!(absorb(&mut case, &Happening::Began(&plan.actions[0])).save, Save::BeforeGoingOn);
    // The same plan again is nothing to save.
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    let plan = case.plan();
    assert_eq!(absorb(&mut case, &Happening::Planned(&plan)).save, Save::Not);
}

#[test]
fn what_is_told_once_is_not_told_again() {
    for (text, reason) in [
        (
            "pod: Always app:web\nseen: s0; web#1 exited 1 done=-3\nmemory: backoff web 10 -20",
            "BackOff",
        ),
        ("pod: Always app:web\nseen: s0 dead; web#0 exited 1", "SandboxChanged"),
        ("pod: Always app:web\nfacts: nonetwork", "NetworkNotReady"),
        ("pod: Always app:web\nfacts: volumes failed x", "FailedMount"),
        ("pod: Always app:web\nseen: s0\nfacts: image web 0 ErrImagePull 4 no", "Failed"),
        ("pod: Always deadline=1 app:web\nseen: s0; web#0 running", "DeadlineExceeded"),
        ("pod: Always app:web\nfacts: rejected OutOfcpu x", "OutOfcpu"),
    ] {
        let mut case = Case::read(text);
        let count = |told: &Told| told.events.iter().filter(|event| event.reason == reason).count();
        let plan = case.plan();
        assert_eq!(count(&absorb(&mut case, &Happening::Planned(&plan))), 1, "{text}");
        let plan = case.plan();
        assert_eq!(count(&absorb(&mut case, &Happening::Planned(&plan))), 0, "{text}");
    }
}

#[test]
fn a_problem_that_comes_back_is_told_again() {
    let mut case = Case::read("pod: Always app:web\nfacts: nonetwork");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    let problem = std::mem::replace(&mut case.facts.network_ready, Ok(()));
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    case.facts.network_ready = problem;
    let plan = case.plan();
    assert_eq!(absorb(&mut case, &Happening::Planned(&plan)).events.len(), 1);
}

#[test]
fn each_kill_that_nobody_names_is_told_once() {
    let mut told = Vec::new();
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running");
    for kills in ["", " ooms=1", " ooms=1", " ooms=3"] {
        let text = format!("pod: Always app:web\nseen: s0; web#0 running{kills}");
        let observed = Case::read(&text).observed;
        told.extend(said(&absorb(&mut case, &Happening::Observed(&observed))));
    }
    let event = "Warning OOMKilling spec.containers{web} the kernel killed";
    let rest = "of the container for want of memory; the limit is 200 bytes; which is not known, \
                since the kernel's log cannot be read here";
    assert_eq!(told, [format!("{event} a process {rest}"), format!("{event} 3 processes {rest}")]);
}

#[test]
fn a_kill_for_memory_of_a_running_container_is_told_once() {
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running oom=200");
    let observed = case.observed.clone();
    let told = absorb(&mut case, &Happening::Observed(&observed));
    assert_eq!(
        said(&told),
        [
            "Warning OOMKilling spec.containers{web} the kernel killed process eater (pid 7) for want \
         of memory: it used 100 bytes of a limit of 200 bytes"
        ]
    );
    assert!(absorb(&mut case, &Happening::Observed(&observed)).events.is_empty());
}

/// Two kills between two observations, in one attempt of a container and in the one before it: each
/// is reported for its own container, and none is repeated with the next.
#[test]
fn every_kill_for_memory_between_two_looks_is_told() {
    let mut case =
        Case::read("pod: Always app:web app:log\nseen: s0; web#0 running; log#0 running");
    let looks = [
        ("web#0 running oom=1 oom=1; log#0 running", &["web 7", "web 8"][..]),
        ("web#0 running oom=1 oom=1; log#0 running oom=1", &["log 7"]),
        (
            "web#0 exited 137 oom=1 oom=1 oom=1; web#1 running oom=1; log#0 running oom=1",
            &["web 9", "web 7"],
        ),
        ("web#0 exited 137 oom=1 oom=1 oom=1; web#1 running oom=1; log#0 running oom=1", &[]),
    ];
    for (seen, expected) in looks {
        let text = format!("pod: Always app:web app:log\nseen: s0; {seen}");
        let observed = Case::read(&text).observed;
        let told = said(&absorb(&mut case, &Happening::Observed(&observed)));
        let short: Vec<String> = told
            .iter()
            .map(|event| {
                let name = event.split_once('{').unwrap().1.split_once('}').unwrap().0;
                let pid = event.split_once("(pid ").unwrap().1.split_once(')').unwrap().0;
                format!("{name} {pid}")
            })
            .collect();
        assert_eq!(short, expected, "{seen}");
    }
}

#[test]
fn more_kills_for_memory_than_are_kept_are_told_as_such_once() {
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running");
    let seen = format!("pod: Always app:web\nseen: s0; web#0 running{}", " oom=1".repeat(11));
    let observed = Case::read(&seen).observed;
    let told = said(&absorb(&mut case, &Happening::Observed(&observed)));
    assert_eq!(told.len(), 9, "{told:#?}");
    assert!(told[0].ends_with("at most 3, before the last 8"), "{}", told[0]);
    assert!(told[1].contains("(pid 10)") && told[8].contains("(pid 17)"), "{told:#?}");
    assert!(absorb(&mut case, &Happening::Observed(&observed)).events.is_empty());
}

#[test]
fn only_what_we_stop_to_start_again_counts_as_killed() {
    for (text, killed) in [
        (
            "pod: Always app:web(live)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
            true,
        ),
        (
            "pod: Always app:web(startup)\nseen: s0; web#0 running\nmemory: failed web web0 startup",
            true,
        ),
        ("pod: Always app:web\nseen: s0; web#0 running changed", true),
        ("pod: Always app:web\nseen: s0; web#0 unknown", false),
        ("pod: Always app:web(post)\nseen: s0; web#0 running\nmemory: hookfailed web web0", false),
        ("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted", false),
    ] {
        let mut case = Case::read(text);
        carry_out(&mut case, Outcome::ContainerStopped { hook_failed: false, result: Ok(()) });
        let memory = case.memory.container("web").unwrap();
        assert_eq!(memory.killed.is_some(), killed, "{text}");
        assert!(case.memory.passing["web"].stop_done.is_some());
    }
}

#[test]
fn what_an_end_leaves_for_the_next_step() {
    // A sandbox that was stopped is stopped, until it is gone.
    let mut case = Case::read("pod: Always app:web\nseen: s0 dead\nwish: deleted");
    carry_out(&mut case, Outcome::Done(Ok(())));
    let observed = case.observed.clone();
    absorb(&mut case, &Happening::Observed(&observed));
    assert!(case.memory.kept.stopped_sandboxes.contains("s0"));
    case.observed.sandboxes.clear();
    let observed = case.observed.clone();
    absorb(&mut case, &Happening::Observed(&observed));
    assert!(case.memory.kept.stopped_sandboxes.is_empty());
    // A finished hook stays finished.
    let text =
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 running\nwish: deleted";
    let mut case = Case::read(text);
    carry_out(&mut case, Outcome::ContainerStopped { hook_failed: false, result: Ok(()) });
    let memory = case.memory.container("a").unwrap();
    assert!(memory.stop.as_ref().unwrap().hook_done);
    assert!(case.memory.passing.get("a").is_none_or(|passing| passing.stop_done.is_none()));
    // A stop that failed has stopped nothing.
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted");
    let result = Err("no".to_owned());
    carry_out(&mut case, Outcome::ContainerStopped { hook_failed: false, result });
    assert!(case.memory.passing.get("web").is_none_or(|passing| passing.stop_done.is_none()));
    // Clean-up with and without the directories.
    for (text, cleaned) in [
        ("pod: Never app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0", Some(false)),
        ("pod: Always app:web\nwish: deleted", Some(true)),
    ] {
        let mut case = Case::read(text);
        carry_out(&mut case, Outcome::Done(Ok(())));
        assert_eq!(case.memory.kept.cleaned, cleaned, "{text}");
    }
}

#[test]
fn what_a_plan_leaves_for_the_next() {
    // A start time stays.
    let mut case = Case::read("pod: Always app:web\nmemory: new");
    for seconds in [0, 9] {
        case.now = at(seconds);
        let plan = case.plan();
        absorb(&mut case, &Happening::Planned(&plan));
        assert_eq!(case.memory.kept.start_time, Some(at(0).nanos()));
    }
    // An address stays when the sandbox goes.
    let mut case = Case::read("pod: Always app:web\nseen: s0 ip=10.1.1.1");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    case.observed.sandboxes[0].ips.clear();
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    assert_eq!(case.memory.kept.pod_ips, ["10.1.1.1"]);
    // A terminal phase stays, whatever is observed later.
    for (code, phase) in [("0", "Succeeded"), ("1", "Failed")] {
        let mut case = Case::read(&format!("pod: Never app:web\nseen: s0; web#0 exited {code}"));
        let plan = case.plan();
        absorb(&mut case, &Happening::Planned(&plan));
        case.observed.containers.clear();
        assert_eq!(case.plan().status.phase.as_str(), phase);
    }
    // A container's exit stays reported when the runtime forgets it.
    let mut case = Case::read(
        "pod: Never app:web app:log\nseen: s0; web#2 exited 9 said=no_such_file; log#0 running",
    );
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    case.observed.containers.remove(0);
    let (before, after) = (plan.status, case.plan().status);
    let told = before.container("web").unwrap();
    assert_eq!(told.state.terminated.as_ref().unwrap().exit_code, 9);
    let still = after.container("web").unwrap();
    assert_eq!((&still.state, &still.container_id), (&told.state, &told.container_id));
    assert_eq!((&still.image, &still.image_id), (&told.image, &told.image_id));
    // A clearing lasts until there is nothing to clear.
    let mut case = Case::read("pod: Always app:web\nseen: s0 dead; web#0 running");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    assert!(case.memory.kept.clearing.is_some());
    case.observed = Case::read("pod: Always app:web\nseen: s0; web#0 running").observed;
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    assert!(case.memory.kept.clearing.is_none());
}

#[test]
fn the_last_act_never_goes_back() {
    let mut case = Case::read("pod: Always app:web");
    for (seconds, last) in [(5, 5), (3, 5), (7, 7)] {
        case.now = at(seconds);
        let ended = Happening::Ended { key: ActionKey::Pod, outcome: Outcome::Aborted };
        absorb(&mut case, &ended);
        assert_eq!(case.memory.last_act(&ActionKey::Pod), Some(at(last)));
        assert_eq!(case.memory.last_end(), Some(at(last)));
    }
}

/// Another client that stops a sandbox gets time to finish; what is left of it after that is
/// stopped all the same, since the client may have died.
#[test]
fn a_sandbox_that_another_client_stops_is_stopped_a_moment_later() {
    const READY: &str = "pod: Always app:web\nseen: s0; web#0 running";
    let stops = |case: &Case| {
        case.plan().actions.iter().any(|action| matches!(action, Action::StopSandbox { .. }))
    };
    for (memory, stops_now) in [("", false), ("\nmemory: stopped s0", false)] {
        let mut case = Case::read(&format!("{READY}{memory}"));
        let seen = case.observed.clone();
        absorb(&mut case, &Happening::Observed(&seen));
        let dead = Case::read("pod: Always app:web\nseen: s0 dead; web#0 exited 137");
        case.observed = dead.observed.clone();
        absorb(&mut case, &Happening::Observed(&dead.observed));
        assert_eq!(stops(&case), stops_now, "{memory}");
        let waits = memory.is_empty();
        assert_eq!(case.plan().wake_at == Some(at(1)), waits, "{memory}");
        case.now = at(1);
        assert_eq!(stops(&case), waits, "{memory}: one that we stopped is not stopped again");
    }
    // One that was dead when it was first observed.
    let mut case = Case::read("pod: Always app:web\nseen: s0 dead; web#0 exited 137");
    let seen = case.observed.clone();
    absorb(&mut case, &Happening::Observed(&seen));
    assert!(stops(&case));
}
