//! Which files a rotation removes, packs and makes.

use super::RotationStep::{Pack, Remove, Rotate};
use super::*;

const LIMITS: LogLimits = LogLimits { size: 10, files: 4 };

fn now() -> ApiTime {
    ApiTime::parse("2026-01-02T03:04:05.9Z").unwrap()
}

fn steps(files: usize, names: &[&str]) -> Vec<RotationStep> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    rotation("0.log", &names, &LogLimits { files, ..LIMITS }, now())
}

fn remove(name: &str) -> RotationStep {
    Remove(name.to_owned())
}

fn rotate() -> RotationStep {
    Rotate("0.log.20260102-030405".to_owned())
}

#[test]
fn a_log_is_rotated_when_it_has_reached_its_size() {
    for (size, expected) in [(0, false), (9, false), (10, true), (11, true)] {
        assert_eq!(LIMITS.is_reached(size), expected, "{size}");
    }
    assert!(LogLimits { size: 0, ..LIMITS }.is_reached(0), "a size of nothing is always reached");
}

#[test]
fn the_first_rotation_only_gives_the_log_its_name() {
    assert_eq!(steps(5, &["0.log"]), [rotate()]);
    assert_eq!(steps(5, &[]), [rotate()]);
}

#[test]
fn the_older_ones_are_packed_and_the_oldest_go() {
    let names =
        ["0.log", "0.log.20260101-000003", "0.log.20260101-000001.gz", "0.log.20260101-000002.gz"];
    let pack = Pack("0.log.20260101-000003".to_owned());
    assert_eq!(steps(5, &names), [pack.clone(), rotate()]);
    assert_eq!(steps(4, &names), [remove("0.log.20260101-000001.gz"), pack, rotate()]);
    for files in [2, 1, 0] {
        let all = [
            remove("0.log.20260101-000001.gz"),
            remove("0.log.20260101-000002.gz"),
            remove("0.log.20260101-000003"),
            rotate(),
        ];
        assert_eq!(steps(files, &names), all, "{files}");
    }
}

#[test]
fn leftovers_of_a_broken_rotation_are_removed_first_and_counted_once() {
    let names = [
        "0.log.20260101-000001",
        "0.log.20260101-000001.gz",
        "0.log.20260101-000002",
        "0.log.20260101-000002.tmp",
    ];
    let expected = [
        remove("0.log.20260101-000002.tmp"),
        remove("0.log.20260101-000001"),
        Pack("0.log.20260101-000002".to_owned()),
        rotate(),
    ];
    assert_eq!(steps(4, &names), expected);
}

#[test]
fn names_that_no_rotation_makes_are_left_alone() {
    let names = [
        "0.log.old",
        "0.log.20260101-00000",
        "0.log.20260101-000001.bak",
        "0.log.20260101-000001.gz.tmp",
        "0.log.2026010a-000001",
        "0.log.\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
        "00.log.20260101-000001",
        "1.log.20260101-000001",
        "0.log",
    ];
    assert_eq!(steps(2, &names), [rotate()]);
}

#[test]
fn a_name_is_greater_than_every_earlier_one() {
    for (there, expected) in [
        ("20260102-030404", "20260102-030405"),
        ("20260102-030405", "20260102-030406"),
        ("20260102-235959", "20260103-000000"),
        ("20280228-235959", "20280229-000000"),
    ] {
        let taken = format!("0.log.{there}");
        let last = steps(9, &[&taken]).pop();
        assert_eq!(last, Some(Rotate(format!("0.log.{expected}"))), "{there}");
        let packed = format!("{taken}.gz");
        assert_eq!(steps(9, &[&packed]), [Rotate(format!("0.log.{expected}"))], "{there}");
    }
    let no_time = steps(9, &["0.log.20269999-999999"]);
    assert_eq!(no_time.last(), Some(&rotate()), "digits that are no time");
}
