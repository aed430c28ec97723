//! Sizes and thresholds against tables, and against what the pinned kubelet made of the same.

use proptest::prelude::*;

use super::*;

/// Taken by the reference in at least one of the two places, and refused here on purpose: shares
/// that compare with nothing or are larger than everything, and hexadecimal floats.
const KNOWINGLY_REFUSED: [&str; 3] = ["inf%", "nan%", "0x1p3%"];

const CAPACITY: i64 = 123_456_789_012_345;

#[test]
fn agrees_with_the_kubelet_on_every_golden_line() {
    let mut lines = include_str!("golden.txt").lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("# Kubernetes v1.36.3")));
    let (mut logs, mut thresholds) = (0, 0);
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["log", input, bytes] => {
                check_log(input, bytes);
                logs += 1;
            }
            ["threshold", input, threshold, reclaim] if KNOWINGLY_REFUSED.contains(&input) => {
                assert_ne!([threshold, reclaim], ["E", "E"], "{input:?} is no exception any more");
                assert_eq!(shown_threshold(input), "E", "threshold {input:?}");
                assert!(ThresholdValue::parse_minimum_reclaim(input).is_err(), "{input:?}");
            }
            ["threshold", input, threshold, reclaim] => {
                assert_eq!(shown_threshold(input), threshold, "threshold {input:?}");
                let ours = ThresholdValue::parse_minimum_reclaim(input);
                assert_eq!(ours.map_or("E".into(), shown), reclaim, "reclaim {input:?}");
                thresholds += 1;
            }
            _ => panic!("golden line {line:?}"),
        }
    }
    assert!(logs > 300 && thresholds > 150, "only {logs} and {thresholds} golden lines");
}

fn check_log(input: &str, bytes: &str) {
    let ours = match LogSizeLimit::parse(input) {
        Ok(LogSizeLimit::Bytes(bytes)) => bytes.to_string(),
        Ok(LogSizeLimit::Unlimited) => "negative".to_owned(),
        Err(_) => "E".to_owned(),
    };
    let theirs = if bytes.starts_with('-') { "negative" } else { bytes };
    assert_eq!(ours, theirs, "log size {input:?}");
}

fn shown(value: ThresholdValue) -> String {
    value.amount_of(&Quantity::from_units(CAPACITY, QuantityFormat::DecimalSi)).to_string()
}

fn shown_threshold(input: &str) -> String {
    match ThresholdValue::parse_threshold(input) {
        Ok(None) => "off".to_owned(),
        Ok(Some(value)) => shown(value),
        Err(_) => "E".to_owned(),
    }
}

#[test]
fn positive_sizes() {
    assert_eq!(parse_positive_size("10Mi").map(|size| size.value()), Ok(10 << 20));
    for wrong in ["0", "0Mi", "-1", "-10Mi"] {
        let expected = SizeError::NotPositive { value: wrong.to_owned() };
        assert_eq!(parse_positive_size(wrong), Err(expected));
    }
    assert!(matches!(parse_positive_size("ten"), Err(SizeError::Quantity(_))));
}

#[test]
fn threshold_errors_name_the_cause() {
    let value = |text: &str| text.to_owned();
    for (text, error) in [
        ("x%", ThresholdError::NotANumber { value: value("x%") }),
        ("nan%", ThresholdError::NotANumber { value: value("nan%") }),
        ("101%", ThresholdError::PercentageRange { value: value("101%") }),
        ("-1%", ThresholdError::PercentageRange { value: value("-1%") }),
        ("0", ThresholdError::NotPositive { value: value("0") }),
    ] {
        assert_eq!(ThresholdValue::parse_threshold(text), Err(error));
    }
    assert_eq!(
        ThresholdValue::parse_minimum_reclaim("-1"),
        Err(ThresholdError::Negative { value: value("-1") })
    );
    assert_eq!(
        ThresholdValue::parse_minimum_reclaim("0%"),
        Err(ThresholdError::NotPositive { value: value("0%") })
    );
}

#[test]
fn a_threshold_is_written_as_it_was_meant() {
    for (text, written) in [("10%", "10%"), ("7.5%", "7.5%"), ("0.5Gi", "512Mi"), ("-0%", "0%")] {
        let value = ThresholdValue::parse_threshold(text);
        assert_eq!(
            value.map(|value| value.map(|value| value.to_string())),
            Ok(Some(written.into()))
        );
    }
}

#[test]
fn a_share_stops_at_the_largest_amount() {
    // Go's conversion would turn this into the most negative number.
    let reclaim = ThresholdValue::parse_minimum_reclaim("1e9%").map(shown);
    assert_eq!(reclaim, Ok(i64::MAX.to_string()));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), near in "[-+]?[0-9.e]{0,8}(%|Mi|Gi|k)?%?") {
        for text in [text, near] {
            let _ = (parse_positive_size(&text), LogSizeLimit::parse(&text));
            let _ = ThresholdValue::parse_minimum_reclaim(&text);
            if let Ok(Some(value)) = ThresholdValue::parse_threshold(&text) {
                let capacity = Quantity::from_units(CAPACITY, QuantityFormat::BinarySi);
                prop_assert!(value.amount_of(&capacity).sign() >= 0);
            }
        }
    }
}
