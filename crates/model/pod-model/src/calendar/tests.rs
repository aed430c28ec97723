//! Known days, and that both directions agree on every day of eight centuries.

use super::*;

#[test]
fn known_days() {
    assert_eq!(days_from_civil(1970, 1, 1), 0);
    assert_eq!(days_from_civil(2000, 3, 1), 11_017);
    assert_eq!(days_from_civil(1969, 12, 31), -1);
    assert_eq!(civil_from_days(20_454), (2026, 1, 1));
    assert_eq!([1900, 2000, 2024, 2026].map(|year| days_in_month(year, 2)), [28, 29, 29, 28]);
}

#[test]
fn both_directions_agree() {
    for day in -146_097..=146_097 {
        let (year, month, of_month) = civil_from_days(day);
        assert!((1..=days_in_month(year, month)).contains(&of_month), "{day}");
        assert_eq!(days_from_civil(year, month, of_month), day);
    }
}
