//! What the pinned Kubernetes made of some thousand quantities, line by line.
//!
//! The files mark where the reference contradicts its own rules (see their generator, the program
//! `goldens/units` of the Kubernetes parts); there the amount itself decides, not the mark.

use super::*;

fn lines(file: &'static str) -> Vec<Vec<&'static str>> {
    let mut lines = file.lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("# Kubernetes v1.36.3")));
    lines.map(|line| line.split('\t').collect()).collect()
}

fn family(letter: &str) -> QuantityFormat {
    match letter {
        "d" => QuantityFormat::DecimalSi,
        "b" => QuantityFormat::BinarySi,
        "e" => QuantityFormat::DecimalExponent,
        _ => panic!("no family {letter:?}"),
    }
}

/// The number that stands for the amount: what follows the slash, if there is one.
fn right_number(field: &str) -> Option<i64> {
    let right = field.split_once('/').map_or(field, |(_, right)| right);
    right.parse().ok()
}

fn check_text(ours: &Quantity, canonical: &str, line: &[&str]) {
    match canonical.strip_prefix('!') {
        // The reference's text has lost the amount; ours must not.
        Some(lost) => {
            assert_ne!(ours.to_string(), lost, "{line:?}");
            assert_eq!(Quantity::parse(&ours.to_string()).as_ref(), Ok(ours), "{line:?}");
        }
        None => assert_eq!(ours.to_string(), canonical, "{line:?}"),
    }
}

#[test]
fn agrees_on_every_single_quantity() {
    let lines = lines(include_str!("../golden.txt"));
    assert!(lines.len() > 2500, "only {} golden lines", lines.len());
    for line in &lines {
        let ours = Quantity::parse(line[0]);
        match (&line[1..], ours) {
            (["wide"], Err(error)) => {
                assert_eq!(error.reason, QuantityReason::OutOfRange, "{line:?}");
            }
            (["E"], Err(error)) => assert_eq!(error.value, line[0]),
            ([letter, canonical, value, milli], Ok(ours)) => {
                assert_eq!(ours.format(), family(letter), "{line:?}");
                check_text(&ours, canonical, line);
                assert_eq!(ours.checked_value(), right_number(value), "{line:?}");
                assert_eq!(ours.checked_milli_value(), right_number(milli), "{line:?}");
            }
            (_, ours) => panic!("golden line {line:?}, but here {ours:?}"),
        }
    }
}

#[test]
fn agrees_on_every_pair() {
    let lines = lines(include_str!("../golden_pairs.txt"));
    assert!(lines.len() > 1500, "only {} golden lines", lines.len());
    for line in &lines {
        let [one, two, order, sum, difference] = line[..] else { panic!("golden line {line:?}") };
        let (one, two) = (quantity(one), quantity(two));
        assert_eq!((one.cmp(&two) as i32).to_string(), order, "{line:?}");
        for (ours, theirs) in [(one.checked_add(&two), sum), (one.checked_sub(&two), difference)] {
            match ours {
                None => assert_eq!(theirs, "wide", "{line:?}"),
                Some(ours) => {
                    let (letter, canonical) = theirs.split_at(1);
                    assert_eq!(ours.format(), family(letter), "{line:?}");
                    check_text(&ours, canonical, line);
                }
            }
        }
    }
}
