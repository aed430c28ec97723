//! Quantities against tables, a big-number model, and what the pinned Kubernetes made of the same.

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, F64Deserializer, I64Deserializer, StrDeserializer};
use serde::de::value::{U64Deserializer, UnitDeserializer};
use serde::ser::Serialize;

use super::*;

mod golden;
mod model;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn writes_the_canonical_form() {
    for (text, canonical) in [
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Ki", "1023Ki"),
        ("1024Ki", "1Mi"),
        ("1.1Ki", "1126400m"),
        ("0.1m", "100u"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1E3", "1e3"),
        ("12000e3", "12e6"),
        ("100000", "100k"),
        ("8Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("+", "0"),
        ("1000E", "1e21"),
        ("1.500", "1500m"),
        ("1e2147483647", "10e2147483646"),
    ] {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn errors_name_the_cause() {
    for (text, reason) in [
        ("", QuantityReason::Malformed),
        ("1 Gi", QuantityReason::Malformed),
        ("1.2.3", QuantityReason::Malformed),
        ("1K", QuantityReason::UnknownSuffix),
        ("1e", QuantityReason::UnknownSuffix),
        ("Ei", QuantityReason::MissingNumber),
        (".e-10", QuantityReason::MissingNumber),
        ("1e2147483648", QuantityReason::OutOfRange),
        ("10e2147483647", QuantityReason::OutOfRange),
        ("1e-2147483649", QuantityReason::OutOfRange),
        ("999999999999999999999999999999999999999", QuantityReason::OutOfRange),
    ] {
        let expected = QuantityError { value: text.to_owned(), reason };
        assert_eq!(Quantity::parse(text), Err(expected), "{text}");
    }
}

#[test]
fn extreme_powers_cost_nothing() {
    // The reference would compute a number of two thousand million digits here.
    assert_eq!(quantity("1e-2147483648"), quantity("1n"));
    assert_eq!(quantity("12345678901234567890e-2147483648"), quantity("1n"));
    assert!(quantity("1e2147483647") > quantity("9e2147483646"));
    assert!(quantity("-1e2147483647") < quantity("1n"));
    assert_eq!(quantity("1e2147483647").value(), i64::MAX);
    assert_eq!(quantity("-1e2147483647").milli_value(), i64::MIN);
    assert_eq!(quantity("1e2147483647").checked_add(&quantity("1")), None);
    assert_eq!(quantity("1e2147483647").checked_mul(10), None);
}

#[test]
fn sums_keep_the_family_of_the_first_that_is_not_zero() {
    let sum =
        |one: &str, two: &str| quantity(one).checked_add(&quantity(two)).map(|q| q.to_string());
    assert_eq!(sum("1Gi", "1G"), Some("2073741824".into()));
    assert_eq!(sum("1Gi", "1024M"), Some("2048576Ki".into()));
    assert_eq!(sum("1G", "1Gi"), Some("2073741824".into()));
    assert_eq!(sum("0", "1Gi"), Some("1Gi".into()));
    assert_eq!(sum("1Gi", "0"), Some("1Gi".into()));
    assert_eq!(sum("100m", "900m"), Some("1".into()));
    // Above the cap of the binary family only a decimal suffix reads back unharmed.
    assert_eq!(sum("8Ei", "1"), Some("9223372036854775808".into()));
    assert_eq!(sum("1Ki", "1e30"), Some("1000000000000000000000000001024".into()));
    let none = quantity("1Gi").checked_sub(&quantity("1Gi"));
    assert_eq!(none.map(|q| (q.is_zero(), q.format())), Some((true, QuantityFormat::BinarySi)));
}

#[test]
fn equal_amounts_may_be_written_differently() {
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert!(!quantity("1Ki").canonical_eq(&quantity("1024")));
    assert!(quantity("1.5Gi").canonical_eq(&quantity("1536Mi")));
    assert!(quantity("1e0").canonical_eq(&quantity("1")));
    assert_eq!(quantity("1").with_format(QuantityFormat::BinarySi).to_string(), "1");
    assert_eq!(Quantity::from_milli(1500, QuantityFormat::DecimalSi), quantity("1.5"));
    assert_eq!(Quantity::from_units(i64::MIN, QuantityFormat::BinarySi).value(), i64::MIN);
    assert_eq!(quantity("3").checked_mul(-2), Some(quantity("-6")));
}

#[test]
fn rounds_away_from_zero_and_stops_at_the_ends() {
    assert_eq!((quantity("1.1").value(), quantity("-1.1").value()), (2, -2));
    assert_eq!((quantity("1u").milli_value(), quantity("-1u").milli_value()), (1, -1));
    assert_eq!(quantity("1E").milli_value(), i64::MAX);
    assert_eq!(quantity("-1E").checked_milli_value(), None);
    assert_eq!(quantity("9223372036854775806.5").checked_value(), Some(i64::MAX));
    assert_eq!(quantity("9223372036854775807.5").checked_value(), None);
}

#[test]
fn documents_hold_text_or_numbers() {
    let text = |text: &'static str| {
        let source: StrDeserializer<'_, ValueError> = text.into_deserializer();
        Quantity::deserialize(source).map(|quantity| quantity.to_string())
    };
    assert_eq!(text(" 1.5Gi "), Ok("1536Mi".into()));
    assert!(text("1.5 Gi").is_err());
    let float = |number| {
        let source = F64Deserializer::<ValueError>::new(number);
        Quantity::deserialize(source).map(|quantity| quantity.to_string())
    };
    assert_eq!(float(0.1), Ok("100m".into()));
    assert_eq!(float(-2.5), Ok("-2500m".into()));
    assert_eq!(float(1e21), Ok("1e21".into()));
    assert_eq!(float(1e-7), Ok("100e-9".into()));
    assert_eq!(float(0.0), Ok("0".into()));
    assert!(float(f64::NAN).is_err() && float(f64::INFINITY).is_err());
    let integer = I64Deserializer::<ValueError>::new(-5000);
    assert_eq!(Quantity::deserialize(integer), Ok(quantity("-5k")));
    let integer = U64Deserializer::<ValueError>::new(u64::MAX);
    assert_eq!(Quantity::deserialize(integer), Ok(quantity("18446744073709551615")));
    let null = UnitDeserializer::<ValueError>::new();
    assert_eq!(Quantity::deserialize(null), Ok(Quantity::ZERO));
    struct QuantityDocument(Quantity);
    impl std::fmt::Display for QuantityDocument {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.serialize(out)
        }
    }
    assert_eq!(QuantityDocument(quantity("0.5Gi")).to_string(), "512Mi");
}

/// Texts that are quantities, of all families and sizes.
fn quantity_text() -> impl Strategy<Value = String> {
    "[-+]?[0-9]{1,20}(\\.[0-9]{0,14})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?"
}

proptest! {
    #[test]
    fn any_amount_reads_back_in_any_family(mantissa: i128, power in -9..60_i32, shift in 0_u32..127) {
        if let Some(amount) = Quantity::normal(mantissa >> shift, power, QuantityFormat::DecimalSi) {
            for format in [QuantityFormat::DecimalSi, QuantityFormat::BinarySi, QuantityFormat::DecimalExponent] {
                let written = amount.with_format(format).to_string();
                prop_assert_eq!(Quantity::parse(&written), Ok(amount), "{}", written);
            }
        }
    }

    #[test]
    fn written_values_read_back(text in quantity_text()) {
        if let Ok(read) = Quantity::parse(&text) {
            let written = read.to_string();
            let again = Quantity::parse(&written);
            prop_assert_eq!(again.as_ref(), Ok(&read), "{}", written);
            prop_assert_eq!(again.map(|again| again.to_string()), Ok(written));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), near in "[-+.0-9eEinumkKMGTP]{0,60}") {
        for text in [text, near] {
            if let Ok(read) = Quantity::parse(&text) {
                let _ = (read.value(), read.milli_value(), read.checked_add(&read), read.cmp(&Quantity::ZERO));
                prop_assert_eq!(Quantity::parse(&read.to_string()), Ok(read));
            }
            let _ = plain_integer(&text);
        }
    }

    #[test]
    fn addition_is_addition(one in quantity_text(), two in quantity_text(), three in quantity_text()) {
        if let (Ok(one), Ok(two), Ok(three)) = (Quantity::parse(&one), Quantity::parse(&two), Quantity::parse(&three)) {
            prop_assert_eq!(one.checked_add(&two), two.checked_add(&one));
            if let Some(sum) = one.checked_add(&two) {
                prop_assert_eq!(sum.checked_sub(&two), Some(one));
                prop_assert_eq!(sum.cmp(&one), two.cmp(&Quantity::ZERO));
                if let (Some(left), Some(tail)) = (sum.checked_add(&three), two.checked_add(&three)) {
                    prop_assert_eq!(Some(left), one.checked_add(&tail));
                }
            }
        }
    }
}
