//! What proves our view, and when somebody is asked.

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
    sight.ask(at(100));
    assert_eq!(sight.ask_at(Proof), None, "one question at a time");
    sight.answered(at(100), true, false);
    assert_eq!(sight.proven(), Some(at(100)));
    assert_eq!(sight.ask_at(Calm), Some(at(106)), "well before the view is too old");
    assert_eq!(sight.ask_at(Steady), Some(at(103)));
    assert_eq!(sight.ask_at(Proof), Some(at(100).after(BETWEEN)));
    assert_eq!((sight.sample(Calm), sight.sample(Steady), sight.sample(Proof)), (1, 8, 8));
    assert!(sight.heard(at(102)));
    assert_eq!(sight.ask_at(Calm), Some(at(108)), "whoever spoke need not be asked");
    sight.ask(at(108));
    sight.answered(at(108), true, true);
    assert_eq!(sight.ask_at(Calm), Some(at(111)), "it missed something: is it deaf?");
    assert_eq!(sight.sample(Calm), SAMPLE);
    assert!(sight.heard(at(109)));
    assert_eq!(sight.ask_at(Calm), Some(at(115)), "it only was late");
    let mut sight = listed();
    sight.ask(at(100));
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
        sight.ask(now);
        sight.answered(now, false, false);
    }
    assert_eq!(sight.proven(), None);
    assert_eq!(sight.ask_at(Proof), Some(at(109).after(LONGEST)));
    sight.ask(at(120));
    sight.answered(at(120), true, false);
    assert_eq!(sight.ask_at(Proof), Some(at(120).after(BETWEEN)));
}

#[test]
fn a_watch_that_misses_everything_is_deaf() {
    let mut sight = listed();
    for round in 0..3 {
        sight.ask(at(100 + round));
        assert_eq!(sight.answered(at(100 + round), true, true), round == 2);
    }
    sight.list_ended(at(110));
    for round in 0..6 {
        sight.ask(at(120 + round));
        assert!(sight.heard(at(120 + round)));
        assert!(!sight.answered(at(120 + round), true, true), "it only was late");
    }
}
