//! What proves the view, and when leases are read.

use super::Need::{Calm, Proof, Steady};
use super::*;

fn at(seconds: i64) -> Moment {
    Moment::from_secs(seconds)
}

fn listed() -> Sight {
    let mut sight = Sight::new(Duration::from_secs(10));
    sight.list_ended(at(100));
    sight
}

#[test]
fn a_change_proves_unless_it_may_be_an_old_one() {
    let mut sight = Sight::new(Duration::from_secs(10));
    assert!(!sight.heard(at(99)), "a list is under way");
    sight.list_ended(at(100));
    assert!(!sight.heard(at(100)), "what was missed meanwhile comes first");
    assert!(sight.heard(at(101)));
    assert_eq!(sight.proven(), Some(at(101)));
    sight.interrupted();
    assert!(!sight.heard(at(102)));
    sight.resumed(at(110));
    assert!(!sight.heard(at(110)));
    assert!(sight.heard(at(111)));
    sight.nodes_heard(false);
    assert!(!sight.heard(at(112)), "a node's news could be missing");
    sight.nodes_heard(true);
    assert!(sight.heard(at(113)));
    assert_eq!(sight.proven(), Some(at(113)));
}

#[test]
fn silence_is_looked_into() {
    let mut sight = listed();
    assert!(sight.ask_at(Calm).is_some_and(|when| when <= at(100)), "never proven: at once");
    assert_eq!(sight.sample(Calm), SAMPLE);
    sight.ask(at(100), false);
    assert_eq!(sight.ask_at(Proof), None, "one question at a time");
    sight.answered(at(100), true, false);
    assert_eq!(sight.proven(), Some(at(100)));
    assert_eq!(sight.ask_at(Calm), Some(at(106)), "well before the view is too old");
    assert_eq!(sight.ask_at(Steady), Some(at(103)));
    assert_eq!(sight.ask_at(Proof), Some(at(100).after(BETWEEN)));
    assert_eq!((sight.sample(Calm), sight.sample(Steady), sight.sample(Proof)), (1, 8, 8));
    assert!(sight.heard(at(102)));
    assert_eq!(sight.ask_at(Calm), Some(at(108)), "whoever spoke need not be asked");
    sight.ask(at(108), false);
    sight.answered(at(108), true, true);
    assert_eq!(sight.proven(), Some(at(102)), "there is more to hear");
    assert_eq!(sight.ask_at(Calm), Some(at(111)), "it missed something: is it deaf?");
    assert_eq!(sight.ask_at(Proof), Some(at(111)), "it gets time to tell");
    assert_eq!(sight.sample(Calm), THOROUGH);
    assert!(sight.heard(at(109)));
    assert_eq!(sight.ask_at(Calm), Some(at(115)), "it only was late");
    let mut sight = listed();
    sight.ask(at(100), false);
    sight.answered(at(100), true, false);
    assert!(sight.heard(at(102)));
    assert!(sight.is_lively(at(105)));
    assert!(!sight.is_lively(at(106)));
}

#[test]
fn failed_questions_prove_nothing_and_come_more_slowly() {
    let mut sight = listed();
    for round in 0..10 {
        let now = at(100 + round);
        sight.ask(now, false);
        sight.answered(now, false, false);
    }
    assert_eq!(sight.proven(), None);
    assert_eq!(sight.ask_at(Proof), Some(at(109).after(LONGEST)));
    sight.ask(at(120), false);
    sight.answered(at(120), true, false);
    assert_eq!(sight.ask_at(Proof), Some(at(120).after(BETWEEN)));
}

#[test]
fn a_watch_that_misses_everything_is_deaf() {
    let mut sight = listed();
    for round in 0..3 {
        sight.ask(at(100 + round), false);
        assert_eq!(sight.answered(at(100 + round), true, true), round == 2);
    }
    sight.list_ended(at(110));
    for round in 0..6 {
        sight.ask(at(120 + round), false);
        assert!(sight.heard(at(120 + round)));
        assert!(!sight.answered(at(120 + round), true, true), "it only was late");
    }
}

/// Whether the watch is open, whether all were read, whether there was a difference; what is
/// proven.
#[test]
fn what_an_answer_proves() {
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
    for (state, all, news, proves) in rows {
        let mut sight = listed();
        assert!(sight.heard(at(101)));
        match state {
            "listing" => sight.list_began(),
            "interrupted" => sight.interrupted(),
            "nodes interrupted" => sight.nodes_heard(false),
            _ => {}
        }
        sight.ask(at(105), all);
        sight.answered(at(105), true, news);
        let expected = if proves { at(105) } else { at(101) };
        assert_eq!(sight.proven(), Some(expected), "{state}, all: {all}, news: {news}");
        let again = if proves { at(105).after(BETWEEN) } else { at(108) };
        assert_eq!(sight.ask_at(Proof), Some(again), "{state}, all: {all}, news: {news}");
    }
}
