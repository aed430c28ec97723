//! A node leaves Ready and the response is lost or late: its pods are marked all the same, and the
//! event is recorded once.

use super::*;

const NINE: NodeId = NodeId(9);

/// Node 9 is silent, and the write that makes it Unknown is in flight.
fn falling() -> LifecycleFixture {
    let mut fixture = four();
    fixture.pass(50, &OTHERS);
    fixture.now += 1;
    let actions = fixture.controller.tick(at(fixture.now), at(fixture.now));
    assert!(
        matches!(actions[..], [LifecycleAction::WriteConditions { node: NINE, .. }]),
        "{actions:?}"
    );
    fixture
}

fn answer(fixture: &mut LifecycleFixture, outcome: WriteOutcome) -> Vec<LifecycleAction> {
    fixture.controller.written(at(fixture.now), NINE, WriteKind::Conditions, outcome)
}

fn source(
    fixture: &mut LifecycleFixture,
    version: u64,
    ready: ConditionState,
) -> Vec<LifecycleAction> {
    let facts = facts(version, ready, 1);
    fixture.controller.observe(at(fixture.now), NINE, facts, ObservationSource::Event)
}

fn marks(actions: &[LifecycleAction]) -> (usize, usize) {
    let count =
        |wanted: &LifecycleAction| actions.iter().filter(|action| *action == wanted).count();
    let not_ready_events =
        LifecycleAction::EmitEvent { node: NINE, event: NodeHealthEvent::NotReady };
    (count(&not_ready_events), count(&LifecycleAction::MarkPodsNotReady { node: NINE }))
}

#[test]
fn the_watch_shows_the_result_of_a_write_without_response() {
    let mut fixture = falling();
    assert_eq!(answer(&mut fixture, WriteOutcome::Failed), []);
    let seen = source(&mut fixture, 500, ConditionState::Unknown);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
    fixture.controller.pods_marked(at(fixture.now), NINE, true);
    fixture.now += 1;
    let later = fixture.controller.tick(at(fixture.now), at(fixture.now));
    assert_eq!(marks(&later), (0, 0), "{later:?}");
    let again = source(&mut fixture, 501, ConditionState::Unknown);
    assert_eq!(marks(&again), (0, 0), "{again:?}");
}

#[test]
fn a_second_try_finds_out_too() {
    let mut fixture = falling();
    answer(&mut fixture, WriteOutcome::Failed);
    fixture.now += 1;
    let retry = fixture.controller.tick(at(fixture.now), at(fixture.now));
    assert!(matches!(retry[..], [LifecycleAction::WriteConditions { node: NINE, version: 1, .. }]));
    // It conflicts with the first, and the node is read.
    let seen = source(&mut fixture, 500, ConditionState::Unknown);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
    assert_eq!(marks(&answer(&mut fixture, WriteOutcome::Failed)), (0, 0));
}

#[test]
fn the_watch_may_be_quicker_than_the_answer() {
    let mut fixture = falling();
    let seen = source(&mut fixture, 500, ConditionState::Unknown);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
    let answered = answer(&mut fixture, WriteOutcome::Written { version: 500 });
    assert_eq!(marks(&answered), (0, 0), "{answered:?}");
}

#[test]
fn a_node_that_stayed_ready_emits_no_event() {
    let mut fixture = falling();
    answer(&mut fixture, WriteOutcome::Failed);
    let renewed = RemoteTime::from_nanos(7);
    fixture.controller.observe_lease(at(fixture.now), NINE, renewed);
    assert_eq!(marks(&source(&mut fixture, 2, ConditionState::True)), (0, 0), "it came back");
    // Then it reports itself not ready, and another client sets it to Unknown.
    assert_eq!(marks(&source(&mut fixture, 3, ConditionState::False)), (0, 0));
    assert_eq!(marks(&source(&mut fixture, 4, ConditionState::Unknown)), (0, 0));
}

#[test]
fn an_old_round_of_marks_does_not_end_a_new_one() {
    let mut fixture = falling();
    assert_eq!(marks(&answer(&mut fixture, WriteOutcome::Written { version: 500 })), (1, 1));
    // It recovers and becomes silent again before its pods' marks succeed.
    let back = facts(501, ConditionState::True, 2);
    fixture.controller.observe(at(fixture.now), NINE, back, ObservationSource::Event);
    fixture.pass(50, &OTHERS);
    fixture.now += 1;
    let actions = fixture.controller.tick(at(fixture.now), at(fixture.now));
    let not_ready_transition =
        |it: &LifecycleAction| matches!(it, LifecycleAction::WriteConditions { node: NINE, .. });
    assert!(actions.iter().any(not_ready_transition), "{actions:?}");
    fixture.controller.pods_marked(at(fixture.now), NINE, true);
    answer(&mut fixture, WriteOutcome::Failed);
    let mut fell = facts(9_000, ConditionState::Unknown, 2);
    fell.taints = fixture.controller.facts(NINE).expect("known").taints.clone();
    let seen = fixture.controller.observe(at(fixture.now), NINE, fell, ObservationSource::Event);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
}

#[test]
fn marking_pods_is_tried_again() {
    let mut fixture = four();
    fixture.pass(50, &OTHERS);
    fixture.now += 1;
    let actions = fixture.controller.tick(at(fixture.now), at(fixture.now));
    assert!(matches!(actions[..], [LifecycleAction::WriteConditions { node: NodeId(9), .. }]));
    let actions = fixture.controller.written(
        at(fixture.now),
        NodeId(9),
        WriteKind::Conditions,
        WriteOutcome::Written { version: 500 },
    );
    assert!(actions.contains(&LifecycleAction::MarkPodsNotReady { node: NodeId(9) }));
    fixture.controller.pods_marked(at(fixture.now), NodeId(9), false);
    fixture.now += 1;
    let again = fixture.controller.tick(at(fixture.now), at(fixture.now));
    assert!(again.contains(&LifecycleAction::MarkPodsNotReady { node: NodeId(9) }));
    fixture.now += 1;
    let under_way = fixture.controller.tick(at(fixture.now), at(fixture.now));
    assert!(
        !under_way.contains(&LifecycleAction::MarkPodsNotReady { node: NodeId(9) }),
        "one at a time"
    );
}

/// A dead leader's write can arrive after its successor saw the node Ready.
#[test]
fn a_not_ready_write_of_a_predecessor_has_its_pods_marked() {
    let mut fixture = four();
    let mut seen = source(&mut fixture, 500, ConditionState::Unknown);
    fixture.now += 1;
    seen.extend(fixture.controller.tick(at(fixture.now), at(fixture.now)));
    assert_eq!(marks(&seen).1, 1, "{seen:?}");
    fixture.controller.pods_marked(at(fixture.now), NINE, true);
    let again = source(&mut fixture, 501, ConditionState::Unknown);
    assert_eq!(marks(&again), (0, 0), "{again:?}");
}
