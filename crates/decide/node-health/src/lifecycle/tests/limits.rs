//! A node that cannot be tainted does not block others, and removed zones take no memory.

use super::*;

/// A failed attempt spends the token and moves the node to the end of the queue, as upstream: in
/// its old position, a node whose taints cannot be written would block its whole zone for ever.
#[test]
fn a_node_whose_taints_are_refused_does_not_hold_up_its_zone() {
    let mut fixture = LifecycleFixture::new();
    let alive: Vec<u32> = (0..8).collect();
    for node in 0..10 {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.tick();
    fixture.stubborn = Some(8);
    fixture.pass(51 + 20, &alive);
    assert_eq!([fixture.no_execute_tainted(8), fixture.no_execute_tainted(9)], [false, true]);
    fixture.stubborn = None;
    fixture.pass(21, &alive);
    assert!(fixture.no_execute_tainted(8), "and has its turn when it can");
}

#[test]
fn zones_that_come_and_go_do_not_pile_up() {
    let mut fixture = four();
    for number in 0..3_000 {
        let version = fixture.version + 1;
        fixture.see(9, in_zone(facts(version, ConditionState::True, 1), &format!("z{number}")));
        if number % 100 == 0 {
            fixture.pass(1, &[1, 2, 3, 9]);
        }
    }
    let zones = fixture.controller.zones();
    let count = zones.iter().count();
    assert!(count <= 512, "{count} zones");
    let zone_of = |node| fixture.controller.zone_of(NodeId(node)).and_then(|zone| zones.get(zone));
    let moved = zone_of(9).expect("known");
    assert_eq!((moved.key().as_str(), moved.size()), (":\0:z2999", 1));
    assert_eq!(zone_of(1).map(crate::zones::Zone::size), Some(3), "who stays keeps its zone");
}

#[test]
fn a_zone_whose_turn_is_spent_is_not_forgotten() {
    let mut fixture = four();
    let version = fixture.version + 1;
    fixture.see(8, in_zone(facts(version, ConditionState::False, 1), "spent"));
    fixture.tick();
    assert!(fixture.no_execute_tainted(8));
    fixture.controller.forget(NodeId(8));
    for number in 0..600 {
        let version = fixture.version + 1;
        fixture.see(7, in_zone(facts(version, ConditionState::True, 1), &format!("z{number}")));
    }
    let version = fixture.version + 1;
    fixture.see(6, in_zone(facts(version, ConditionState::False, 1), "spent"));
    fixture.pass(9, &[1, 2, 3, 7, 9]);
    assert!(!fixture.no_execute_tainted(6), "its zone's turn was taken a moment ago");
    fixture.pass(2, &[1, 2, 3, 7, 9]);
    assert!(fixture.no_execute_tainted(6));
}

/// Its token cannot be spent before the write in flight has ended, so it causes no wake-ups.
#[test]
fn a_node_with_a_write_in_flight_causes_no_wakeup() {
    for outcome in [WriteOutcome::Failed, WriteOutcome::Written { version: 50 }] {
        let mut fixture = four();
        let now = at(fixture.now);
        let lost = facts(2, ConditionState::False, 2);
        let sent = fixture.controller.observe(now, NodeId(9), lost, ObservationSource::Event);
        assert!(matches!(sent[..], [LifecycleAction::PatchTaints { .. }]), "{sent:?}");
        assert_eq!(fixture.controller.tick(now, now), []);
        let wake = fixture.controller.next_wake().expect("somebody's patience ends");
        assert!(wake.since(now) > Duration::from_secs(30), "{outcome:?}: {wake:?}");
        let ended = fixture.controller.written(now, NodeId(9), WriteKind::Taints, outcome);
        assert_eq!(ended, []);
        let wake = fixture.controller.next_wake().expect("it waits again");
        assert!(wake <= now.after(fixture.controller.settings().retry), "{outcome:?}: {wake:?}");
        let next = now.after(Duration::from_secs(1));
        let sent = fixture.controller.tick(next, next);
        assert!(matches!(sent[..], [LifecycleAction::PatchTaints { .. }]), "{outcome:?}: {sent:?}");
    }
}
