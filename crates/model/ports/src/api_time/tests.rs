//! Texts and the nanoseconds they stand for; the numbers are from another calendar's arithmetic.

use super::ApiTime;

#[test]
fn texts_are_read_as_nanoseconds() {
    let table: &[(&str, Option<i64>)] = &[
        ("1970-01-01T00:00:00Z", Some(0)),
        ("1970-01-01T00:00:00.000000001Z", Some(1)),
        ("1970-01-01T00:00:00.5Z", Some(500_000_000)),
        ("1970-01-01T00:00:00.1234567899Z", Some(123_456_789)),
        ("1970-01-01T01:00:00+01:00", Some(0)),
        ("1969-12-31T23:30:00-00:30", Some(0)),
        ("2000-02-29T12:00:00Z", Some(951_825_600_000_000_000)),
        ("2026-11-15T23:40:25Z", Some(1_794_786_025_000_000_000)),
        ("1969-12-31T23:59:59Z", Some(-1_000_000_000)),
        ("0001-01-01T00:00:00Z", Some(i64::MIN)),
        ("9999-12-31T23:59:59Z", Some(i64::MAX)),
        ("2026-02-29T00:00:00Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-00-01T00:00:00Z", None),
        ("2026-01-01T24:00:00Z", None),
        ("2026-01-01T00:00:00", None),
        ("2026-01-01T00:00:00.Z", None),
        ("2026-01-01T00:00:00+0100", None),
        ("2026-01-01", None),
        ("+026-01-01T00:00:00Z", None),
        ("", None),
        ("soon", None),
        ("2026-01-01T00:00:00Zé", None),
    ];
    for (text, expected) in table {
        assert_eq!(ApiTime::parse(text).map(ApiTime::nanos), *expected, "{text}");
    }
}

#[test]
fn written_times_read_back() {
    for second in [0, -1, 951_825_600, 951_868_799, 1_794_786_025, -9_000_000_000, 9_000_000_000] {
        let time = ApiTime::from_nanos(second * 1_000_000_000 + 123_456_789);
        let seconds = ApiTime::parse(&time.to_seconds_text()).map(ApiTime::nanos);
        assert_eq!(seconds, Some(second * 1_000_000_000));
        let micros = ApiTime::parse(&time.to_micros_text()).map(ApiTime::nanos);
        assert_eq!(micros, Some(second * 1_000_000_000 + 123_456_000));
    }
    let time = ApiTime::from_nanos(1_794_786_025_000_001_999);
    assert_eq!(time.to_seconds_text(), "2026-11-15T23:40:25Z");
    assert_eq!(time.to_micros_text(), "2026-11-15T23:40:25.000001Z");
    for edge in [i64::MIN, i64::MAX] {
        assert!(ApiTime::parse(&ApiTime::from_nanos(edge).to_seconds_text()).is_some());
    }
}
