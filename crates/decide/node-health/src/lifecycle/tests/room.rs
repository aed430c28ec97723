//! A node that cannot be tainted does not block others, and removed zones take no memory.

use super::*;

/// A failed attempt spends the token and moves the node to the end of the queue, as upstream: in
/// its old position, a node whose taints cannot be written would block its whole zone for ever.
#[test]
fn a_node_whose_taints_are_refused_does_not_hold_up_its_zone() {
    let mut bench = Bench::new();
    let alive: Vec<u32> = (0..8).collect();
    for node in 0..10 {
        bench.see(node, facts(1, Truth::True, 1));
    }
    bench.tick();
    bench.stubborn = Some(8);
    bench.pass(51 + 20, &alive);
    assert_eq!([bench.given_up(8), bench.given_up(9)], [false, true]);
    bench.stubborn = None;
    bench.pass(21, &alive);
    assert!(bench.given_up(8), "and has its turn when it can");
}

#[test]
fn zones_that_come_and_go_do_not_pile_up() {
    let mut bench = four();
    for number in 0..3_000 {
        let version = bench.version + 1;
        bench.see(9, in_zone(facts(version, Truth::True, 1), &format!("z{number}")));
        if number % 100 == 0 {
            bench.pass(1, &[1, 2, 3, 9]);
        }
    }
    let zones = bench.controller.zones();
    let count = zones.iter().count();
    assert!(count <= 512, "{count} zones");
    let zone_of = |node| bench.controller.zone_of(NodeId(node)).and_then(|zone| zones.get(zone));
    let moved = zone_of(9).expect("known");
    assert_eq!((moved.key().as_str(), moved.size()), (":\0:z2999", 1));
    assert_eq!(zone_of(1).map(crate::zones::Zone::size), Some(3), "who stays keeps its zone");
}

#[test]
fn a_zone_whose_turn_is_spent_is_not_forgotten() {
    let mut bench = four();
    let version = bench.version + 1;
    bench.see(8, in_zone(facts(version, Truth::False, 1), "spent"));
    bench.tick();
    assert!(bench.given_up(8));
    bench.controller.forget(NodeId(8));
    for number in 0..600 {
        let version = bench.version + 1;
        bench.see(7, in_zone(facts(version, Truth::True, 1), &format!("z{number}")));
    }
    let version = bench.version + 1;
    bench.see(6, in_zone(facts(version, Truth::False, 1), "spent"));
    bench.pass(9, &[1, 2, 3, 7, 9]);
    assert!(!bench.given_up(6), "its zone's turn was taken a moment ago");
    bench.pass(2, &[1, 2, 3, 7, 9]);
    assert!(bench.given_up(6));
}

/// Its token cannot be spent before the write in flight has ended, so it causes no wake-ups.
#[test]
fn who_has_a_write_on_its_way_wakes_nobody_until_it_ends() {
    for outcome in [Outcome::Failed, Outcome::Written { version: 50 }] {
        let mut bench = four();
        let now = at(bench.now);
        let lost = facts(2, Truth::False, 2);
        let sent = bench.controller.observe(now, NodeId(9), lost, Sight::Event);
        assert!(matches!(sent[..], [Action::PatchTaints { .. }]), "{sent:?}");
        assert_eq!(bench.controller.tick(now, now), []);
        let wake = bench.controller.next_wake().expect("somebody's patience ends");
        assert!(wake.since(now) > Duration::from_secs(30), "{outcome:?}: {wake:?}");
        let ended = bench.controller.written(now, NodeId(9), WriteKind::Taints, outcome);
        assert_eq!(ended, []);
        let wake = bench.controller.next_wake().expect("it waits again");
        assert!(wake <= now.after(bench.controller.settings().retry), "{outcome:?}: {wake:?}");
        let next = now.after(Duration::from_secs(1));
        let sent = bench.controller.tick(next, next);
        assert!(matches!(sent[..], [Action::PatchTaints { .. }]), "{outcome:?}: {sent:?}");
    }
}
