//! Sorted maps and points in time.

use super::{SortedMap, Timestamp};

#[test]
fn keyed_keeps_order_and_replaces() {
    let mut map: SortedMap<i32> = [("b", 1), ("a", 2), ("b", 3)].into_iter().collect();
    assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &2), ("b", &3)]);
    map.insert("aa", 4);
    assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "aa", "b"]);
    assert_eq!(map.remove("aa"), Some(4));
    assert_eq!(map.get("aa"), None);
    assert!(map.contains("a"));
}

#[test]
fn timestamps_read_and_write() {
    for (text, seconds) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T23:59:59Z", 951_868_799),
        ("2026-01-02T03:04:05Z", 1_767_323_045),
        ("2026-01-02T03:04:05.999999Z", 1_767_323_045),
        ("2026-01-02T05:04:05+02:00", 1_767_323_045),
        ("2026-01-01T22:34:05-04:30", 1_767_323_045),
        ("1969-12-31T23:59:59Z", -1),
        ("0001-01-01T00:00:00Z", -62_135_596_800),
    ] {
        assert_eq!(Timestamp::parse(text), Some(Timestamp(seconds)), "{text}");
        let again = Timestamp(seconds).to_string();
        assert_eq!(Timestamp::parse(&again), Some(Timestamp(seconds)), "{again}");
    }
    assert_eq!(Timestamp(951_868_799).to_string(), "2000-02-29T23:59:59Z");
}

#[test]
fn invalid_times_are_refused() {
    for text in [
        "",
        "2026-01-02",
        "2026-01-02 03:04:05Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:04:60Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.Z",
        "26-01-02T03:04:05Z",
        "2026-01-02T03:04:05+0200",
        "T+",
        "TZ",
    ] {
        assert_eq!(Timestamp::parse(text), None, "{text}");
    }
}
