//! Actions that begin and end, and the events about them.

use crate::action::{Action, ActionKey};
use crate::input::{
    ActionOutcome, Milestone, PodEffects, PodInput, SaveUrgency, StartFailure, StartStage,
};
use crate::testing::{PlanCase, at};

use super::{apply_input, carry_out, event_texts};

#[test]
fn actions_emit_their_events() {
    let failure = |stage, id: Option<&str>| {
        ActionOutcome::ContainerStarted(Err(StartFailure {
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
    let rows: Vec<(&str, ActionOutcome, Vec<&str>)> = vec![
        (start, ActionOutcome::ContainerStarted(Ok("w".to_owned())), vec![created, started]),
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
        (stop, ActionOutcome::ContainerStopped { hook_failed: false, result: Ok(()) }, vec![]),
        (
            stop,
            ActionOutcome::ContainerStopped { hook_failed: true, result: Ok(()) },
            vec!["Warning FailedPreStopHook spec.containers{web} PreStopHook failed"],
        ),
        (
            stop,
            ActionOutcome::ContainerStopped { hook_failed: false, result: Err("busy".to_owned()) },
            vec!["Warning FailedKillPod pod error killing pod: busy"],
        ),
        (
            "pod: Always app:web",
            ActionOutcome::SandboxRun(Err("no address".to_owned())),
            vec!["Warning FailedCreatePodSandBox pod Failed to create pod sandbox: no address"],
        ),
        ("pod: Always app:web", ActionOutcome::SandboxRun(Ok("s0".to_owned())), vec![]),
        (
            "pod: Always app:web\nmemory: unprepared",
            ActionOutcome::Done(Err("no cgroup".to_owned())),
            vec![
                "Warning FailedCreatePodContainer pod unable to ensure pod container exists: no cgroup",
            ],
        ),
        ("pod: Always app:web\nwish: deleted", ActionOutcome::Done(Err("busy".to_owned())), vec![]),
        // The pod continues: it is not the pod that could not be killed.
        (
            "pod: Always app:web\nseen: s0; web#0 running changed",
            ActionOutcome::ContainerStopped { hook_failed: false, result: Err("busy".to_owned()) },
            vec![],
        ),
    ];
    for (text, outcome, expected) in rows {
        let mut case = PlanCase::read(text);
        let emitted = carry_out(&mut case, outcome.clone());
        assert_eq!(event_texts(&emitted), expected, "{text} {outcome:?}");
    }
}

#[test]
fn a_sandbox_failure_during_termination_emits_no_event() {
    let mut case =
        PlanCase::read("pod: Always app:web\nmemory: flight -1 sandbox 0\nwish: deleted");
    let outcome = ActionOutcome::SandboxRun(Err("cancelled".to_owned()));
    let emitted = apply_input(&mut case, &PodInput::Ended { key: ActionKey::Sandbox, outcome });
    assert!(emitted.events.is_empty());
}

#[test]
fn a_failed_start_records_its_reason() {
    for (stage, reason, waits) in [
        (StartStage::Config, "CreateContainerConfigError", true),
        (StartStage::Create, "CreateContainerError", true),
        (StartStage::Start, "RunContainerError", true),
        (StartStage::PostStart, "PostStartHookError", false),
    ] {
        let mut case = PlanCase::read("pod: Always app:web\nseen: s0");
        let failure = StartFailure { stage, message: "m".to_owned(), id: Some("w".to_owned()) };
        carry_out(&mut case, ActionOutcome::ContainerStarted(Err(failure)));
        let memory = case.memory.container("web").unwrap();
        let recorded = memory.start_failure.as_ref().unwrap();
        assert_eq!(recorded.reason, reason);
        let retry = recorded.retry_at.map(|retry| (retry - at(0).nanos()) / 1_000_000_000);
        assert_eq!(retry.is_some_and(|retry| (10..15).contains(&retry)), waits, "{retry:?}");
        assert_eq!(memory.post_start_failed.is_some(), stage == StartStage::PostStart);
        // A good start forgets it.
        case.observed.as_of = at(1);
        case.now = at(20);
        carry_out(&mut case, ActionOutcome::ContainerStarted(Ok("w2".to_owned())));
        assert!(case.memory.container("web").unwrap().start_failure.is_none());
    }
}

#[test]
fn a_start_that_the_runtime_has_not_shown_yet_is_no_back_off() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 exited 1");
    carry_out(&mut case, ActionOutcome::ContainerStarted(Ok("web1".to_owned())));
    let plan = case.plan();
    assert!(plan.notes.start_blockers.is_empty(), "{:?}", plan.notes.start_blockers);
    let status = plan.status.container("web").unwrap();
    assert!(status.state.waiting.is_none(), "{status:?}");
    // The runtime shows that it has exited again.
    let mut next = PlanCase::read("pod: Always app:web\nseen: s0; web#0 exited 1; web#1 exited 1");
    next.memory = case.memory;
    next.observed.as_of = at(1);
    let plan = next.plan();
    let waiting = plan.status.container("web").unwrap().state.waiting.as_ref().unwrap();
    assert_eq!(&*waiting.reason, "CrashLoopBackOff");
}

#[test]
fn failures_hold_back_for_ten_to_fifteen_seconds_and_are_forgotten() {
    let mut case = PlanCase::read("pod: Always app:web");
    carry_out(&mut case, ActionOutcome::SandboxRun(Err("no".to_owned())));
    case.observed.as_of = at(1);
    case.now = at(9);
    let held = case.plan();
    assert!(held.actions.is_empty());
    let wake = held.wake_at.unwrap();
    assert!(wake >= at(10) && wake < at(15), "{wake:?}");
    case.now = wake;
    assert_eq!(case.plan().actions.len(), 1);
    carry_out(&mut case, ActionOutcome::SandboxRun(Ok("s0".to_owned())));
    assert!(case.memory.failures.is_empty());
}

#[test]
fn a_running_container_is_reported_while_its_post_start_hook_runs() {
    let mut case = PlanCase::read(
        "pod: Always app:web(post)\nseen: s0; web#0 running made=-2\nmemory: flight 0 start web 0",
    );
    // The runtime's clock may be behind the agent's.
    case.now = at(2);
    let observed = case.observed.clone();
    let emitted = apply_input(&mut case, &PodInput::Observed(&observed));
    assert_eq!(event_texts(&emitted).len(), 2);
    assert!(emitted.marks.iter().any(|(_, mark)| matches!(mark, Milestone::Started { .. })));
    // Not again, neither when it is observed nor when the start finishes.
    assert!(apply_input(&mut case, &PodInput::Observed(&observed)).events.is_empty());
    let key = ActionKey::Container("web".to_owned());
    let outcome = ActionOutcome::ContainerStarted(Ok("web0".to_owned()));
    assert!(apply_input(&mut case, &PodInput::Ended { key, outcome }).events.is_empty());
}

#[test]
fn a_container_with_another_attempt_is_not_the_one_being_started() {
    for seen in ["web#1 running made=1", "web#1 running made=-5", "web#0 created made=1"] {
        let text = format!("pod: Always app:web\nseen: s0; {seen}\nmemory: flight 0 start web 0");
        let mut case = PlanCase::read(&text);
        let observed = case.observed.clone();
        assert!(apply_input(&mut case, &PodInput::Observed(&observed)).events.is_empty(), "{seen}");
    }
}

#[test]
fn a_repeated_outcome_changes_nothing_but_requires_a_new_observation() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0");
    carry_out(&mut case, ActionOutcome::ContainerStarted(Ok("w".to_owned())));
    let before = case.memory.persisted.clone();
    let key = ActionKey::Container("web".to_owned());
    let failure = StartFailure { stage: StartStage::Create, message: "late".to_owned(), id: None };
    let outcome = ActionOutcome::ContainerStarted(Err(failure));
    let emitted = apply_input(&mut case, &PodInput::Ended { key: key.clone(), outcome });
    assert!(emitted.events.is_empty());
    assert_eq!(case.memory.persisted, before);
    assert_eq!(case.memory.last_action_end(&key), Some(case.now));
}

#[test]
fn state_that_is_saved_before_the_next_action() {
    let rows = [
        // A normal start does not wait for the disk.
        ("pod: Always app:web\nseen: s0", SaveUrgency::Soon),
        (
            "pod: Always app:web\nseen: s0; web#0 running\nwish: deleted",
            SaveUrgency::BeforeNextAction,
        ),
        ("pod: Never app:web\nseen: s0; web#0 exited 0", SaveUrgency::BeforeNextAction),
        ("pod: Always app:web\nseen: s0; web#0 running changed", SaveUrgency::Soon),
    ];
    for (text, expected) in rows {
        let mut case = PlanCase::read(text);
        let plan = case.plan();
        let planned = apply_input(&mut case, &PodInput::Planned(&plan)).save;
        assert_eq!(planned, expected, "{text}");
    }
    // The deadline of a stop is saved before it begins.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running changed");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    let began = apply_input(&mut case, &PodInput::ActionBegun(&plan.actions[0]));
    assert_eq!(began.save, SaveUrgency::BeforeNextAction);
    // So is what is known only from a record, before the record is removed.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 created");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    assert_eq!(
        apply_input(&mut case, &PodInput::ActionBegun(&plan.actions[0])).save,
        SaveUrgency::BeforeNextAction
    );
    // Unless the pod is no longer desired.
    let mut case = PlanCase::read(
        "pod: Always app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0; cleaned all\nwish: deleted",
    );
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    assert!(matches!(plan.actions[0], Action::RemoveContainer { .. }));
    assert_eq!(
        apply_input(&mut case, &PodInput::ActionBegun(&plan.actions[0])).save,
        SaveUrgency::Not
    );
    // So is the back-off of the next restart, before this one begins.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 exited 1");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    assert!(matches!(plan.actions[0], Action::StartContainer { attempt: 1, .. }));
    assert_eq!(
        apply_input(&mut case, &PodInput::ActionBegun(&plan.actions[0])).save,
        SaveUrgency::BeforeNextAction
    );
    // The same plan again is nothing to save.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    let plan = case.plan();
    assert_eq!(apply_input(&mut case, &PodInput::Planned(&plan)).save, SaveUrgency::Not);
}

#[test]
fn an_event_is_emitted_once() {
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
        let mut case = PlanCase::read(text);
        let count = |emitted: &PodEffects| {
            emitted.events.iter().filter(|event| event.reason == reason).count()
        };
        let plan = case.plan();
        assert_eq!(count(&apply_input(&mut case, &PodInput::Planned(&plan))), 1, "{text}");
        let plan = case.plan();
        assert_eq!(count(&apply_input(&mut case, &PodInput::Planned(&plan))), 0, "{text}");
    }
}

#[test]
fn a_recurring_problem_emits_its_event_again() {
    let mut case = PlanCase::read("pod: Always app:web\nfacts: nonetwork");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    let problem = std::mem::replace(&mut case.facts.network_ready, Ok(()));
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    case.facts.network_ready = problem;
    let plan = case.plan();
    assert_eq!(apply_input(&mut case, &PodInput::Planned(&plan)).events.len(), 1);
}

#[test]
fn an_unnamed_oom_kill_is_reported_once() {
    let mut emitted = Vec::new();
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    for kills in ["", " ooms=1", " ooms=1", " ooms=3"] {
        let text = format!("pod: Always app:web\nseen: s0; web#0 running{kills}");
        let observed = PlanCase::read(&text).observed;
        emitted.extend(event_texts(&apply_input(&mut case, &PodInput::Observed(&observed))));
    }
    let event = "Warning OOMKilling spec.containers{web} the kernel killed";
    let rest = "of the container for want of memory; the limit is 200 bytes; which is not known, \
                since the kernel's log cannot be read here";
    assert_eq!(
        emitted,
        [format!("{event} a process {rest}"), format!("{event} 3 processes {rest}")]
    );
}

#[test]
fn an_oom_kill_in_a_running_container_is_reported_once() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running oom=200");
    let observed = case.observed.clone();
    let emitted = apply_input(&mut case, &PodInput::Observed(&observed));
    assert_eq!(
        event_texts(&emitted),
        [
            "Warning OOMKilling spec.containers{web} the kernel killed process eater (pid 7) for want \
         of memory: it used 100 bytes of a limit of 200 bytes"
        ]
    );
    assert!(apply_input(&mut case, &PodInput::Observed(&observed)).events.is_empty());
}

/// Two kills between two observations, in one attempt of a container and in the one before it: each
/// is reported for its own container, and none is repeated with the next.
#[test]
fn every_oom_kill_between_two_observations_is_reported() {
    let mut case =
        PlanCase::read("pod: Always app:web app:log\nseen: s0; web#0 running; log#0 running");
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
        let observed = PlanCase::read(&text).observed;
        let emitted = event_texts(&apply_input(&mut case, &PodInput::Observed(&observed)));
        let short: Vec<String> = emitted
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
fn dropped_oom_kills_are_reported_once() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    let seen = format!("pod: Always app:web\nseen: s0; web#0 running{}", " oom=1".repeat(11));
    let observed = PlanCase::read(&seen).observed;
    let emitted = event_texts(&apply_input(&mut case, &PodInput::Observed(&observed)));
    assert_eq!(emitted.len(), 9, "{emitted:#?}");
    assert!(emitted[0].ends_with("at most 3, before the last 8"), "{}", emitted[0]);
    assert!(emitted[1].contains("(pid 10)") && emitted[8].contains("(pid 17)"), "{emitted:#?}");
    assert!(apply_input(&mut case, &PodInput::Observed(&observed)).events.is_empty());
}

#[test]
fn only_a_container_stopped_for_a_restart_counts_as_killed() {
    for (text, killed) in [
        (
            "pod: Always app:web(live)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
            true,
        ),
        (
            "pod: Always app:web(startup)\nseen: s0; web#0 running\nmemory: failed web web0 startup",
            true,
        ),
        (
            "pod: Never app:web(live)\nseen: s0; web#0 running\nmemory: failed web web0 liveness",
            false,
        ),
        ("pod: Always app:web\nseen: s0; web#0 running changed", true),
        ("pod: Never app:web\nseen: s0; web#0 running changed", true),
        ("pod: Always app:web\nseen: s0; web#0 unknown", false),
        ("pod: Always app:web(post)\nseen: s0; web#0 running\nmemory: hookfailed web web0", false),
        ("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted", false),
    ] {
        let mut case = PlanCase::read(text);
        carry_out(
            &mut case,
            ActionOutcome::ContainerStopped { hook_failed: false, result: Ok(()) },
        );
        let memory = case.memory.container("web").unwrap();
        assert_eq!(memory.killed.is_some(), killed, "{text}");
        assert!(case.memory.transient["web"].stop_done.is_some());
    }
}

#[test]
fn an_ended_action_updates_the_memory() {
    // A sandbox that was stopped is stopped, until it is gone.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0 dead\nwish: deleted");
    carry_out(&mut case, ActionOutcome::Done(Ok(())));
    let observed = case.observed.clone();
    apply_input(&mut case, &PodInput::Observed(&observed));
    assert!(case.memory.persisted.stopped_sandboxes.contains("s0"));
    case.observed.sandboxes.clear();
    let observed = case.observed.clone();
    apply_input(&mut case, &PodInput::Observed(&observed));
    assert!(case.memory.persisted.stopped_sandboxes.is_empty());
    // A finished hook stays finished.
    let text =
        "pod: Always side:a(pre) app:web\nseen: s0; a#0 running; web#0 running\nwish: deleted";
    let mut case = PlanCase::read(text);
    carry_out(&mut case, ActionOutcome::ContainerStopped { hook_failed: false, result: Ok(()) });
    let memory = case.memory.container("a").unwrap();
    assert!(memory.stop.as_ref().unwrap().hook_done);
    assert!(case.memory.transient.get("a").is_none_or(|transient| transient.stop_done.is_none()));
    // A stop that failed has stopped nothing.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted");
    let result = Err("no".to_owned());
    carry_out(&mut case, ActionOutcome::ContainerStopped { hook_failed: false, result });
    assert!(case.memory.transient.get("web").is_none_or(|transient| transient.stop_done.is_none()));
    // Clean-up with and without the directories.
    for (text, cleaned) in [
        ("pod: Never app:web\nseen: s0 dead; web#0 exited 0\nmemory: stopped s0", Some(false)),
        ("pod: Always app:web\nwish: deleted", Some(true)),
    ] {
        let mut case = PlanCase::read(text);
        carry_out(&mut case, ActionOutcome::Done(Ok(())));
        assert_eq!(case.memory.persisted.cleaned, cleaned, "{text}");
    }
}

#[test]
fn a_plan_updates_the_memory() {
    // A start time stays.
    let mut case = PlanCase::read("pod: Always app:web\nmemory: new");
    for seconds in [0, 9] {
        case.now = at(seconds);
        let plan = case.plan();
        apply_input(&mut case, &PodInput::Planned(&plan));
        assert_eq!(case.memory.persisted.start_time, Some(at(0).nanos()));
    }
    // An address stays when the sandbox goes.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0 ip=10.1.1.1");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    case.observed.sandboxes[0].ips.clear();
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    assert_eq!(case.memory.persisted.pod_ips, ["10.1.1.1"]);
    // A terminal phase stays, whatever is observed later.
    for (code, phase) in [("0", "Succeeded"), ("1", "Failed")] {
        let mut case =
            PlanCase::read(&format!("pod: Never app:web\nseen: s0; web#0 exited {code}"));
        let plan = case.plan();
        apply_input(&mut case, &PodInput::Planned(&plan));
        case.observed.containers.clear();
        assert_eq!(case.plan().status.phase.as_str(), phase);
    }
    // A container's exit stays reported when the runtime forgets it.
    let mut case = PlanCase::read(
        "pod: Never app:web app:log\nseen: s0; web#2 exited 9 said=no_such_file; log#0 running",
    );
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    case.observed.containers.remove(0);
    let (before, after) = (plan.status, case.plan().status);
    let emitted = before.container("web").unwrap();
    assert_eq!(emitted.state.terminated.as_ref().unwrap().exit_code, 9);
    let still = after.container("web").unwrap();
    assert_eq!((&still.state, &still.container_id), (&emitted.state, &emitted.container_id));
    assert_eq!((&still.image, &still.image_id), (&emitted.image, &emitted.image_id));
    // A clearing lasts until there is nothing to clear.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0 dead; web#0 running");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    assert!(case.memory.persisted.clearing.is_some());
    case.observed = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running").observed;
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    assert!(case.memory.persisted.clearing.is_none());
}

#[test]
fn the_last_action_end_never_moves_back() {
    let mut case = PlanCase::read("pod: Always app:web");
    for (seconds, last) in [(5, 5), (3, 5), (7, 7)] {
        case.now = at(seconds);
        let input = PodInput::Ended { key: ActionKey::Pod, outcome: ActionOutcome::Aborted };
        apply_input(&mut case, &input);
        assert_eq!(case.memory.last_action_end(&ActionKey::Pod), Some(at(last)));
        assert_eq!(case.memory.last_end(), Some(at(last)));
    }
}

/// Another client that stops a sandbox gets time to finish; what is left of it after that is
/// stopped all the same, since the client may have died.
#[test]
fn a_sandbox_stopped_by_another_client_is_stopped_after_a_delay() {
    const READY: &str = "pod: Always app:web\nseen: s0; web#0 running";
    let stops = |case: &PlanCase| {
        case.plan().actions.iter().any(|action| matches!(action, Action::StopSandbox { .. }))
    };
    for (memory, stops_now) in [("", false), ("\nmemory: stopped s0", false)] {
        let mut case = PlanCase::read(&format!("{READY}{memory}"));
        let seen = case.observed.clone();
        apply_input(&mut case, &PodInput::Observed(&seen));
        let dead = PlanCase::read("pod: Always app:web\nseen: s0 dead; web#0 exited 137");
        case.observed = dead.observed.clone();
        apply_input(&mut case, &PodInput::Observed(&dead.observed));
        assert_eq!(stops(&case), stops_now, "{memory}");
        let waits = memory.is_empty();
        assert_eq!(case.plan().wake_at == Some(at(1)), waits, "{memory}");
        case.now = at(1);
        assert_eq!(stops(&case), waits, "{memory}: one that we stopped is not stopped again");
    }
    // One that was dead when it was first observed.
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0 dead; web#0 exited 137");
    let seen = case.observed.clone();
    apply_input(&mut case, &PodInput::Observed(&seen));
    assert!(stops(&case));
}
