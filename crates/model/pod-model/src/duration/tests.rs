//! Durations against tables, properties, and the texts that the pinned Go made.

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::*;

#[test]
fn agrees_with_go_on_every_golden_line() {
    let mut lines = include_str!("golden.txt").lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("# Kubernetes v1.36.3")));
    let mut checked = 0;
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        match (fields[..].len(), GoDuration::parse(fields[0])) {
            (2, Err(_)) => assert_eq!(fields[1], "E", "{line}"),
            (3, Ok(duration)) => {
                assert_eq!(duration.as_nanos().to_string(), fields[1], "{line}");
                assert_eq!(duration.to_string(), fields[2], "{line}");
            }
            (_, ours) => panic!("golden line {line:?}, but here {ours:?}"),
        }
        checked += 1;
    }
    assert!(checked > 2000, "only {checked} golden lines");
}

#[test]
fn errors_name_the_cause() {
    let reason = |text: &str| GoDuration::parse(text).map_err(|error| error.reason);
    assert_eq!(reason(""), Err(DurationReason::Empty));
    assert_eq!(reason("-"), Err(DurationReason::Empty));
    assert_eq!(reason("10"), Err(DurationReason::MissingUnit));
    assert_eq!(reason("1h.s"), Err(DurationReason::MissingNumber { at: ".s".into() }));
    assert_eq!(reason("1d"), Err(DurationReason::UnknownUnit { unit: "d".into() }));
    assert_eq!(reason("2562048h"), Err(DurationReason::OutOfRange));
    let shown = GoDuration::parse("5 minutes").map_err(|error| error.to_string());
    assert!(shown.is_err_and(|text| text.contains("\"5 minutes\"") && text.contains("unit")));
}

#[test]
fn constructors_stop_at_the_ends() {
    assert_eq!(GoDuration::from_secs(90).to_string(), "1m30s");
    assert_eq!(GoDuration::from_millis(100).to_string(), "100ms");
    assert_eq!(GoDuration::from_secs(i64::MAX), GoDuration::MAX);
    assert_eq!(GoDuration::from_millis(i64::MIN), GoDuration::MIN);
    assert_eq!(GoDuration::MIN.to_string(), "-2562047h47m16.854775808s");
    assert_eq!(GoDuration::from_nanos(-1).as_std(), None);
    assert_eq!(GoDuration::from_secs(2).as_std(), Some(Duration::from_secs(2)));
}

#[test]
fn documents_hold_it_as_text() {
    let source: StrDeserializer<'_, ValueError> = "1h30m".into_deserializer();
    assert_eq!(GoDuration::deserialize(source), Ok(GoDuration::from_secs(5400)));
    let source: StrDeserializer<'_, ValueError> = "soon".into_deserializer();
    assert!(GoDuration::deserialize(source).is_err());
    let number = serde::de::value::I64Deserializer::<ValueError>::new(5);
    assert!(GoDuration::deserialize(number).is_err());
    struct DurationDocument(GoDuration);
    impl fmt::Display for DurationDocument {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(out)
        }
    }
    assert_eq!(DurationDocument(GoDuration::from_secs(5400)).to_string(), "1h30m0s");
}

proptest! {
    #[test]
    fn written_values_read_back(nanoseconds: i64, shift in 0_u32..63) {
        let duration = GoDuration::from_nanos(nanoseconds >> shift);
        prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    }

    #[test]
    fn terms_without_fractions_add_up(hours in 0_i64..1000, minutes in 0_i64..1000, nanos in 0_i64..1_000_000) {
        let text = format!("{hours}h{minutes}m{nanos}ns");
        let expected = (hours * 3600 + minutes * 60) * 1_000_000_000 + nanos;
        prop_assert_eq!(GoDuration::parse(&text), Ok(GoDuration::from_nanos(expected)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), near in "[-+]?[0-9.]{0,30}[nuµmsh]{0,3}[0-9.]{0,5}[a-zµ]{0,3}") {
        for text in [text, near] {
            if let Ok(duration) = GoDuration::parse(&text) {
                prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
            }
        }
    }
}
