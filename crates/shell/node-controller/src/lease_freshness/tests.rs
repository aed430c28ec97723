//! What proves the view, and when leases are read.

use super::Need::{Calm, Proof, Steady};
use super::*;

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn listed() -> LeaseFreshness {
    let mut lease_freshness = LeaseFreshness::new(Duration::from_secs(10));
    lease_freshness.on_list_finished(at(100));
    lease_freshness
}

#[test]
fn a_change_proves_the_view_unless_it_may_be_old() {
    let mut lease_freshness = LeaseFreshness::new(Duration::from_secs(10));
    assert!(!lease_freshness.on_change(at(99)), "a list is under way");
    lease_freshness.on_list_finished(at(100));
    assert!(!lease_freshness.on_change(at(100)), "what was missed meanwhile comes first");
    assert!(lease_freshness.on_change(at(101)));
    assert_eq!(lease_freshness.proven(), Some(at(101)));
    lease_freshness.on_interrupted();
    assert!(!lease_freshness.on_change(at(102)));
    lease_freshness.on_resumed(at(110));
    assert!(!lease_freshness.on_change(at(110)));
    assert!(lease_freshness.on_change(at(111)));
    lease_freshness.set_nodes_watch_open(false);
    assert!(!lease_freshness.on_change(at(112)), "node events could be missing");
    lease_freshness.set_nodes_watch_open(true);
    assert!(lease_freshness.on_change(at(113)));
    assert_eq!(lease_freshness.proven(), Some(at(113)));
}

#[test]
fn a_silent_watch_is_probed() {
    let mut lease_freshness = listed();
    assert!(
        lease_freshness.next_probe_at(Calm).is_some_and(|when| when <= at(100)),
        "never proven: at once"
    );
    assert_eq!(lease_freshness.sample(Calm), PROBE_SAMPLE);
    lease_freshness.start_probe(at(100), false);
    assert_eq!(lease_freshness.next_probe_at(Proof), None, "one question at a time");
    lease_freshness.on_probe_answer(at(100), true, false);
    assert_eq!(lease_freshness.proven(), Some(at(100)));
    assert_eq!(
        lease_freshness.next_probe_at(Calm),
        Some(at(106)),
        "well before the view is too old"
    );
    assert_eq!(lease_freshness.next_probe_at(Steady), Some(at(103)));
    assert_eq!(lease_freshness.next_probe_at(Proof), Some(at(100).after(MIN_PROBE_INTERVAL)));
    assert_eq!(
        (
            lease_freshness.sample(Calm),
            lease_freshness.sample(Steady),
            lease_freshness.sample(Proof)
        ),
        (1, 8, 8)
    );
    assert!(lease_freshness.on_change(at(102)));
    assert_eq!(
        lease_freshness.next_probe_at(Calm),
        Some(at(108)),
        "whoever spoke need not be asked"
    );
    lease_freshness.start_probe(at(108), false);
    lease_freshness.on_probe_answer(at(108), true, true);
    assert_eq!(lease_freshness.proven(), Some(at(102)), "there is more to hear");
    assert_eq!(
        lease_freshness.next_probe_at(Calm),
        Some(at(111)),
        "it missed something: is it deaf?"
    );
    assert_eq!(lease_freshness.next_probe_at(Proof), Some(at(111)), "it gets time to tell");
    assert_eq!(lease_freshness.sample(Calm), MAX_FULL_PROBE);
    assert!(lease_freshness.on_change(at(109)));
    assert_eq!(lease_freshness.next_probe_at(Calm), Some(at(115)), "it only was late");
    let mut lease_freshness = listed();
    lease_freshness.start_probe(at(100), false);
    lease_freshness.on_probe_answer(at(100), true, false);
    assert!(lease_freshness.on_change(at(102)));
    assert!(lease_freshness.is_lively(at(105)));
    assert!(!lease_freshness.is_lively(at(106)));
}

#[test]
fn failed_probes_prove_nothing_and_back_off() {
    let mut lease_freshness = listed();
    for round in 0..10 {
        let now = at(100 + round);
        lease_freshness.start_probe(now, false);
        lease_freshness.on_probe_answer(now, false, false);
    }
    assert_eq!(lease_freshness.proven(), None);
    assert_eq!(lease_freshness.next_probe_at(Proof), Some(at(109).after(MAX_PROBE_INTERVAL)));
    lease_freshness.start_probe(at(120), false);
    lease_freshness.on_probe_answer(at(120), true, false);
    assert_eq!(lease_freshness.next_probe_at(Proof), Some(at(120).after(MIN_PROBE_INTERVAL)));
}

#[test]
fn a_watch_that_misses_every_change_is_reopened() {
    let mut lease_freshness = listed();
    for round in 0..3 {
        lease_freshness.start_probe(at(100 + round), false);
        assert_eq!(lease_freshness.on_probe_answer(at(100 + round), true, true), round == 2);
    }
    lease_freshness.on_list_finished(at(110));
    for round in 0..6 {
        lease_freshness.start_probe(at(120 + round), false);
        assert!(lease_freshness.on_change(at(120 + round)));
        assert!(!lease_freshness.on_probe_answer(at(120 + round), true, true), "it only was late");
    }
}

/// Whether the watch is open, whether all were read, whether there was a difference; what is
/// proven.
#[test]
fn a_probe_answer_proves_the_view_it_agrees_with() {
    let rows = [
        ("open", false, false, true),
        ("open", false, true, false),
        ("open", true, false, true),
        ("open", true, true, true),
        ("listing", false, false, false),
        ("listing", true, false, true),
        ("listing", true, true, true),
        ("interrupted", false, false, false),
        ("interrupted", true, false, true),
        ("nodes interrupted", false, false, false),
        ("nodes interrupted", true, false, false),
    ];
    for (state, all, found_changes, proves) in rows {
        let mut lease_freshness = listed();
        assert!(lease_freshness.on_change(at(101)));
        match state {
            "listing" => lease_freshness.on_list_started(),
            "interrupted" => lease_freshness.on_interrupted(),
            "nodes interrupted" => lease_freshness.set_nodes_watch_open(false),
            _ => {}
        }
        lease_freshness.start_probe(at(105), all);
        lease_freshness.on_probe_answer(at(105), true, found_changes);
        let expected = if proves { at(105) } else { at(101) };
        assert_eq!(
            lease_freshness.proven(),
            Some(expected),
            "{state}, all: {all}, news: {found_changes}"
        );
        let again = if proves { at(105).after(MIN_PROBE_INTERVAL) } else { at(108) };
        assert_eq!(
            lease_freshness.next_probe_at(Proof),
            Some(again),
            "{state}, all: {all}, news: {found_changes}"
        );
    }
}
