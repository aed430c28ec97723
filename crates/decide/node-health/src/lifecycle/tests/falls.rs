//! A node leaves Ready and the response is lost or late: its pods are marked all the same, and the
//! event is recorded once.

use super::*;

const NINE: NodeId = NodeId(9);

/// Node 9 is silent, and the write that makes it Unknown is in flight.
fn falling() -> Bench {
    let mut bench = four();
    bench.pass(50, &OTHERS);
    bench.now += 1;
    let actions = bench.controller.tick(at(bench.now), at(bench.now));
    assert!(matches!(actions[..], [Action::WriteConditions { node: NINE, .. }]), "{actions:?}");
    bench
}

fn answer(bench: &mut Bench, outcome: Outcome) -> Vec<Action> {
    bench.controller.written(at(bench.now), NINE, WriteKind::Conditions, outcome)
}

fn sight(bench: &mut Bench, version: u64, ready: Truth) -> Vec<Action> {
    let facts = facts(version, ready, 1);
    bench.controller.observe(at(bench.now), NINE, facts, Sight::Event)
}

fn marks(actions: &[Action]) -> (usize, usize) {
    let count = |wanted: &Action| actions.iter().filter(|action| *action == wanted).count();
    let told = Action::Tell { node: NINE, event: NodeEvent::NotReady };
    (count(&told), count(&Action::MarkPodsNotReady { node: NINE }))
}

#[test]
fn the_watch_tells_what_a_lost_answer_did_not() {
    let mut bench = falling();
    assert_eq!(answer(&mut bench, Outcome::Failed), []);
    let seen = sight(&mut bench, 500, Truth::Unknown);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
    bench.controller.pods_marked(at(bench.now), NINE, true);
    bench.now += 1;
    let later = bench.controller.tick(at(bench.now), at(bench.now));
    assert_eq!(marks(&later), (0, 0), "{later:?}");
    let again = sight(&mut bench, 501, Truth::Unknown);
    assert_eq!(marks(&again), (0, 0), "{again:?}");
}

#[test]
fn a_second_try_finds_out_too() {
    let mut bench = falling();
    answer(&mut bench, Outcome::Failed);
    bench.now += 1;
    let retry = bench.controller.tick(at(bench.now), at(bench.now));
    assert!(matches!(retry[..], [Action::WriteConditions { node: NINE, version: 1, .. }]));
    // It conflicts with the first, and the node is read.
    let seen = sight(&mut bench, 500, Truth::Unknown);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
    assert_eq!(marks(&answer(&mut bench, Outcome::Failed)), (0, 0));
}

#[test]
fn the_watch_may_be_quicker_than_the_answer() {
    let mut bench = falling();
    let seen = sight(&mut bench, 500, Truth::Unknown);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
    let answered = answer(&mut bench, Outcome::Written { version: 500 });
    assert_eq!(marks(&answered), (0, 0), "{answered:?}");
}

#[test]
fn one_that_did_not_fall_is_not_told_of() {
    let mut bench = falling();
    answer(&mut bench, Outcome::Failed);
    let renewed = Stamp::from_nanos(7);
    bench.controller.lease_seen(at(bench.now), NINE, renewed);
    assert_eq!(marks(&sight(&mut bench, 2, Truth::True)), (0, 0), "it came back");
    // Then it reports itself not ready, and another client sets it to Unknown.
    assert_eq!(marks(&sight(&mut bench, 3, Truth::False)), (0, 0));
    assert_eq!(marks(&sight(&mut bench, 4, Truth::Unknown)), (0, 0));
}

#[test]
fn an_old_round_of_marks_does_not_end_a_new_one() {
    let mut bench = falling();
    assert_eq!(marks(&answer(&mut bench, Outcome::Written { version: 500 })), (1, 1));
    // It recovers and becomes silent again before its pods' marks succeed.
    let back = facts(501, Truth::True, 2);
    bench.controller.observe(at(bench.now), NINE, back, Sight::Event);
    bench.pass(50, &OTHERS);
    bench.now += 1;
    let actions = bench.controller.tick(at(bench.now), at(bench.now));
    let falls = |it: &Action| matches!(it, Action::WriteConditions { node: NINE, .. });
    assert!(actions.iter().any(falls), "{actions:?}");
    bench.controller.pods_marked(at(bench.now), NINE, true);
    answer(&mut bench, Outcome::Failed);
    let mut fell = facts(9_000, Truth::Unknown, 2);
    fell.taints = bench.controller.facts(NINE).expect("known").taints.clone();
    let seen = bench.controller.observe(at(bench.now), NINE, fell, Sight::Event);
    assert_eq!(marks(&seen), (1, 1), "{seen:?}");
}

#[test]
fn marking_pods_is_tried_again() {
    let mut bench = four();
    bench.pass(50, &OTHERS);
    bench.now += 1;
    let actions = bench.controller.tick(at(bench.now), at(bench.now));
    assert!(matches!(actions[..], [Action::WriteConditions { node: NodeId(9), .. }]));
    let actions = bench.controller.written(
        at(bench.now),
        NodeId(9),
        WriteKind::Conditions,
        Outcome::Written { version: 500 },
    );
    assert!(actions.contains(&Action::MarkPodsNotReady { node: NodeId(9) }));
    bench.controller.pods_marked(at(bench.now), NodeId(9), false);
    bench.now += 1;
    let again = bench.controller.tick(at(bench.now), at(bench.now));
    assert!(again.contains(&Action::MarkPodsNotReady { node: NodeId(9) }));
    bench.now += 1;
    let under_way = bench.controller.tick(at(bench.now), at(bench.now));
    assert!(!under_way.contains(&Action::MarkPodsNotReady { node: NodeId(9) }), "one at a time");
}

/// A dead leader's write can arrive after its successor saw the node Ready.
#[test]
fn a_fall_by_somebody_elses_write_has_its_pods_marked() {
    let mut bench = four();
    let mut seen = sight(&mut bench, 500, Truth::Unknown);
    bench.now += 1;
    seen.extend(bench.controller.tick(at(bench.now), at(bench.now)));
    assert_eq!(marks(&seen).1, 1, "{seen:?}");
    bench.controller.pods_marked(at(bench.now), NINE, true);
    let again = sight(&mut bench, 501, Truth::Unknown);
    assert_eq!(marks(&again), (0, 0), "{again:?}");
}
