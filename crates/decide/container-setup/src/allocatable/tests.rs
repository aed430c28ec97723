//! What is left for pods.

use super::*;
use crate::testing::amounts;

fn capacity() -> ResourceList {
    amounts(&[
        ("cpu", "4"),
        ("memory", "10Gi"),
        ("ephemeral-storage", "100Gi"),
        ("hugepages-2Mi", "1Gi"),
        ("pods", "110"),
        ("pid", "1000"),
    ])
}

fn reservations() -> Reservations {
    let threshold = |text| ThresholdValue::parse_threshold(text).expect("a threshold");
    Reservations {
        system: amounts(&[("cpu", "500m"), ("memory", "1Gi"), ("pid", "100")]),
        kube: amounts(&[("cpu", "250m"), ("memory", "1Gi"), ("other", "1")]),
        eviction_memory: threshold("1Gi"),
        eviction_storage: threshold("10%"),
    }
}

#[test]
fn the_kernel_stops_at_what_is_reserved() {
    let expected = amounts(&[
        ("cpu", "3250m"),
        ("memory", "8Gi"),
        ("ephemeral-storage", "100Gi"),
        ("hugepages-2Mi", "1Gi"),
        ("pods", "110"),
        ("pid", "900"),
    ]);
    assert_eq!(enforced(&capacity(), &reservations()), expected);
    assert_eq!(enforced(&capacity(), &Reservations::default()), capacity());
}

#[test]
fn allocatable_is_less_than_the_enforced_limit() {
    let left = reported_allocatable(&capacity(), &reservations());
    // 10 less 2 reserved, 1 for eviction, 1 in huge pages.
    assert_eq!(left.get("memory"), amounts(&[("m", "6Gi")]).get("m"));
    // The reference's percentage is a 32-bit fraction.
    let storage = left.get("ephemeral-storage").expect("there").value();
    assert!((storage - (90 << 30)).abs() < 1024, "{storage}");
    assert_eq!(left.get("cpu").map(ToString::to_string).as_deref(), Some("3250m"));
    let plain = reported_allocatable(&capacity(), &Reservations::default());
    assert_eq!(plain.get("memory"), amounts(&[("m", "9Gi")]).get("m"));
}

#[test]
fn nothing_falls_below_zero() {
    let much = Reservations {
        system: amounts(&[("memory", "20Gi"), ("cpu", "9")]),
        ..Reservations::default()
    };
    for list in [enforced(&capacity(), &much), reported_allocatable(&capacity(), &much)] {
        assert!(list.get("memory").expect("there").is_zero());
        assert!(list.get("cpu").expect("there").is_zero());
    }
    let pages = amounts(&[("memory", "1Gi"), ("hugepages-1Gi", "2Gi")]);
    assert!(
        reported_allocatable(&pages, &Reservations::default())
            .get("memory")
            .expect("there")
            .is_zero()
    );
}

#[test]
fn more_reserved_than_there_is() {
    assert_eq!(check(&capacity(), &reservations()), Ok(()));
    let exactly = Reservations { system: amounts(&[("cpu", "4")]), ..Reservations::default() };
    assert_eq!(check(&capacity(), &exactly), Ok(()));
    let much = Reservations {
        system: amounts(&[("cpu", "3")]),
        kube: amounts(&[("cpu", "2")]),
        ..reservations()
    };
    let text = "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 5 but capacity of 4. Expected capacity >= reservation.";
    assert_eq!(check(&capacity(), &much), Err(text.to_owned()));
    let evicting = Reservations {
        eviction_memory: ThresholdValue::parse_threshold("11Gi").expect("a threshold"),
        ..Reservations::default()
    };
    assert!(check(&capacity(), &evicting).expect_err("too much").contains("\"memory\""));
}
