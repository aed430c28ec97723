//! What is kept of actions: attempt numbers, deadlines, milestones.

use crate::action::{Action, ActionKey};
use crate::input::{ActionOutcome, Milestone, PodInput};
use crate::testing::{PlanCase, at};

use super::{apply_input, carry_out};

#[test]
fn each_action_marks_its_place_in_the_timeline() {
    let rows = [
        (
            "pod: Always app:web",
            ActionOutcome::SandboxRun(Ok("s0".to_owned())),
            vec![Milestone::SandboxBegan, Milestone::SandboxRan],
        ),
        (
            "pod: Always app:web\nseen: s0; web#2 exited 1",
            ActionOutcome::ContainerStarted(Ok("w".to_owned())),
            vec![
                Milestone::CreateBegan { container: "web".to_owned(), attempt: 3 },
                Milestone::Started { container: "web".to_owned(), attempt: 3 },
            ],
        ),
        (
            "pod: Always app:web\nwish: deleted",
            ActionOutcome::Done(Ok(())),
            vec![Milestone::CleanedUp],
        ),
    ];
    for (text, outcome, expected) in rows {
        let mut case = PlanCase::read(text);
        let plan = case.plan();
        let action = plan.actions.first().expect("an action").clone();
        let began = apply_input(&mut case, &PodInput::ActionBegun(&action)).marks;
        let ended = apply_input(&mut case, &PodInput::Ended { key: action.key(), outcome }).marks;
        let marks: Vec<Milestone> = began.into_iter().chain(ended).map(|(_, mark)| mark).collect();
        assert_eq!(marks, expected, "{text}");
    }
}

#[test]
fn a_number_with_which_nothing_started_is_free() {
    for (seen, highest) in [
        ("web#3 created", None),
        ("web#3 running", Some(3)),
        ("web#3 exited 0", Some(3)),
        // A runtime that reports only one of both times.
        ("web#3 exited 0 started=-1000000", Some(3)),
        ("web#3 exited 0 done=-1000000", Some(3)),
    ] {
        let mut case = PlanCase::read(&format!("pod: Always app:web\nseen: s0; {seen}"));
        let observed = case.observed.clone();
        apply_input(&mut case, &PodInput::Observed(&observed));
        let found = case.memory.container("web").and_then(|memory| memory.highest);
        assert_eq!(found, highest, "{seen}");
    }
}

#[test]
fn the_stop_of_the_next_container_has_a_deadline_of_its_own() {
    let stop = |case: &mut PlanCase| {
        let plan = case.plan();
        apply_input(case, &PodInput::ActionBegun(&plan.actions[0]));
        case.memory.container("web").unwrap().stop.clone().unwrap()
    };
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running changed");
    assert_eq!(stop(&mut case).deadline, at(30).nanos());
    case.memory.in_flight.clear();
    case.now = at(100);
    case.observed = PlanCase::read("pod: Always app:web\nseen: s0; web#1 running changed").observed;
    let next = stop(&mut case);
    assert_eq!((next.id.as_str(), next.deadline), ("web1", at(130).nanos()));
}

#[test]
fn a_killing_event_is_emitted_once_however_often_the_grace_shrinks() {
    let stop = |id: &str, replaces| Action::StopContainer {
        id: id.to_owned(),
        name: "web".to_owned(),
        grace: std::time::Duration::from_secs(5),
        pre_stop: false,
        reason: crate::action::KillReason::PodEnds,
        message: "Stopping container web".to_owned(),
        replaces,
    };
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted");
    for (id, replaces, emitted) in [
        ("web0", false, 1),
        ("web0", true, 0),
        ("web0", true, 0),
        // It still runs, and the runtime is asked again.
        ("web0", false, 1),
        // One whose start it replaces was not being stopped before.
        ("web1", true, 1),
        ("web1", true, 0),
    ] {
        let events = apply_input(&mut case, &PodInput::ActionBegun(&stop(id, replaces))).events;
        assert_eq!(events.len(), emitted, "{id} {replaces}");
    }
}

#[test]
fn a_pod_that_was_prepared_is() {
    let mut case = PlanCase::read("pod: Always app:web\nmemory: unprepared");
    carry_out(&mut case, ActionOutcome::Done(Ok(())));
    assert!(case.memory.prepared);
}

#[test]
fn actions_in_flight_are_listed() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0");
    let key = ActionKey::Container("web".to_owned());
    assert_eq!(case.memory.action_in_flight(&key), None);
    let action = case.plan().actions[0].clone();
    apply_input(&mut case, &PodInput::ActionBegun(&action));
    assert_eq!(case.memory.action_in_flight(&key), Some(&action));
    assert_eq!(case.memory.actions_in_flight().collect::<Vec<_>>(), [&action]);
}

#[test]
fn the_first_deadline_of_a_stop_stays() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted");
    let plan = case.plan();
    apply_input(&mut case, &PodInput::Planned(&plan));
    apply_input(&mut case, &PodInput::ActionBegun(&plan.actions[0]));
    let first = case.memory.container("web").unwrap().stop.clone().unwrap();
    assert_eq!(first.deadline, at(30).nanos());
    case.now = at(10);
    let Action::StopContainer { .. } = &plan.actions[0] else { panic!("a stop") };
    apply_input(&mut case, &PodInput::ActionBegun(&plan.actions[0]));
    assert_eq!(case.memory.container("web").unwrap().stop.clone().unwrap(), first);
}

#[test]
fn marks_are_made_once() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    let plan = case.plan();
    let first = apply_input(&mut case, &PodInput::Planned(&plan)).marks;
    assert!(first.iter().any(|(time, mark)| *mark == Milestone::FirstReady && *time == at(0)));
    case.now = at(5);
    let plan = case.plan();
    assert!(apply_input(&mut case, &PodInput::Planned(&plan)).marks.is_empty());
}
