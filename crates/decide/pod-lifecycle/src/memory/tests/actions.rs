//! What is kept of actions: attempt numbers, deadlines, milestones.

use crate::action::{Action, ActionKey};
use crate::happening::{Happening, Mark, Outcome};
use crate::testing::{Case, at};

use super::{absorb, carry_out};

#[test]
fn each_action_marks_its_place_in_the_timeline() {
    let rows = [
        (
            "pod: Always app:web",
            Outcome::SandboxRun(Ok("s0".to_owned())),
            vec![Mark::SandboxBegan, Mark::SandboxRan],
        ),
        (
            "pod: Always app:web\nseen: s0; web#2 exited 1",
            Outcome::ContainerStarted(Ok("w".to_owned())),
            vec![
                Mark::CreateBegan { container: "web".to_owned(), attempt: 3 },
                Mark::Started { container: "web".to_owned(), attempt: 3 },
            ],
        ),
        ("pod: Always app:web\nwish: deleted", Outcome::Done(Ok(())), vec![Mark::CleanedUp]),
    ];
    for (text, outcome, expected) in rows {
        let mut case = Case::read(text);
        let plan = case.plan();
        let action = plan.actions.first().expect("an action").clone();
        let began = absorb(&mut case, &Happening::Began(&action)).marks;
        let ended = absorb(&mut case, &Happening::Ended { key: action.key(), outcome }).marks;
        let marks: Vec<Mark> = began.into_iter().chain(ended).map(|(_, mark)| mark).collect();
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
        let mut case = Case::read(&format!("pod: Always app:web\nseen: s0; {seen}"));
        let observed = case.observed.clone();
        absorb(&mut case, &Happening::Observed(&observed));
        let found = case.memory.container("web").and_then(|memory| memory.highest);
        assert_eq!(found, highest, "{seen}");
    }
}

#[test]
fn the_stop_of_the_next_container_has_a_deadline_of_its_own() {
    let stop = |case: &mut Case| {
        let plan = case.plan();
        absorb(case, &Happening::Began(&plan.actions[0]));
        case.memory.container("web").unwrap().stop.clone().unwrap()
    };
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running changed");
    assert_eq!(stop(&mut case).deadline, at(30).nanos());
    case.memory.in_flight.clear();
    case.now = at(100);
    case.observed = Case::read("pod: Always app:web\nseen: s0; web#1 running changed").observed;
    let next = stop(&mut case);
    assert_eq!((next.id.as_str(), next.deadline), ("web1", at(130).nanos()));
}

#[test]
fn a_stop_is_told_once_however_often_its_grace_is_cut() {
    let stop = |id: &str, replaces| Action::StopContainer {
        id: id.to_owned(),
        name: "web".to_owned(),
        grace: std::time::Duration::from_secs(5),
        pre_stop: false,
        reason: crate::action::KillReason::PodEnds,
        message: "Stopping container web".to_owned(),
        replaces,
    };
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted");
    for (id, replaces, told) in [
        ("web0", false, 1),
        ("web0", true, 0),
        ("web0", true, 0),
        // It still runs, and the runtime is asked again.
        ("web0", false, 1),
        // One whose start it replaces was not being stopped before.
        ("web1", true, 1),
        ("web1", true, 0),
    ] {
        let events = absorb(&mut case, &Happening::Began(&stop(id, replaces))).events;
        assert_eq!(events.len(), told, "{id} {replaces}");
    }
}

#[test]
fn a_pod_that_was_prepared_is() {
    let mut case = Case::read("pod: Always app:web\nmemory: unprepared");
    carry_out(&mut case, Outcome::Done(Ok(())));
    assert!(case.memory.prepared);
}

#[test]
fn what_is_in_flight_can_be_asked_for() {
    let mut case = Case::read("pod: Always app:web\nseen: s0");
    let key = ActionKey::Container("web".to_owned());
    assert_eq!(case.memory.action_in_flight(&key), None);
    let action = case.plan().actions[0].clone();
    absorb(&mut case, &Happening::Began(&action));
    assert_eq!(case.memory.action_in_flight(&key), Some(&action));
    assert_eq!(case.memory.actions_in_flight().collect::<Vec<_>>(), [&action]);
}

#[test]
fn the_first_deadline_of_a_stop_stays() {
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running\nwish: deleted");
    let plan = case.plan();
    absorb(&mut case, &Happening::Planned(&plan));
    absorb(&mut case, &Happening::Began(&plan.actions[0]));
    let first = case.memory.container("web").unwrap().stop.clone().unwrap();
    assert_eq!(first.deadline, at(30).nanos());
    case.now = at(10);
    let Action::StopContainer { .. } = &plan.actions[0] else { panic!("a stop") };
    absorb(&mut case, &Happening::Began(&plan.actions[0]));
    assert_eq!(case.memory.container("web").unwrap().stop.clone().unwrap(), first);
}

#[test]
fn marks_are_made_once() {
    let mut case = Case::read("pod: Always app:web\nseen: s0; web#0 running");
    let plan = case.plan();
    let first = absorb(&mut case, &Happening::Planned(&plan)).marks;
    assert!(first.iter().any(|(time, mark)| *mark == Mark::FirstReady && *time == at(0)));
    case.now = at(5);
    let plan = case.plan();
    assert!(absorb(&mut case, &Happening::Planned(&plan)).marks.is_empty());
}
