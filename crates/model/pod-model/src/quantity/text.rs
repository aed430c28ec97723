//! From quantity to text, and to and from serialised documents.
//!
//! The canonical form: no decimals, no lost precision, the largest suffix of the family with
//! which that is possible. A document may hold a quantity as text or as a number.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{Quantity, QuantityError, QuantityFormat};

/// Below this the binary family has no suffix to offer.
const SMALLEST_BINARY: u128 = 1024;
/// Above this no text with a binary suffix is read as it is written.
const LARGEST_BINARY: u128 = i64::MAX.unsigned_abs() as u128;
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.format {
            _ if self.is_zero() => "0".to_owned(),
            QuantityFormat::BinarySi => self.binary_text().unwrap_or_else(|| self.decimal_text()),
            QuantityFormat::DecimalSi | QuantityFormat::DecimalExponent => self.decimal_text(),
        };
        out.pad(&text)
    }
}

impl Quantity {
    /// The binary form, which only whole numbers of at least 1024 have. Text with a binary suffix
    /// is capped when it is read, so sums above that cap have no such form either.
    fn binary_text(&self) -> Option<String> {
        let integer = self.exact_integer()?;
        if integer.unsigned_abs() < SMALLEST_BINARY {
            return None;
        }
        let mut count = integer;
        let mut suffix = 0;
        while count % 1024 == 0 && suffix + 1 < BINARY_SUFFIXES.len() {
            count /= 1024;
            suffix += 1;
        }
        if suffix > 0 && integer.unsigned_abs() > LARGEST_BINARY {
            return None;
        }
        Some(format!("{count}{}", BINARY_SUFFIXES[suffix]))
    }

    fn decimal_text(&self) -> String {
        // Zeros are appended as text: the mantissa times 100 might not fit 128 bits.
        let zeros = self.exponent.rem_euclid(3);
        let power = self.exponent - zeros;
        let number = format!("{}{}", self.mantissa, &"00"[..zeros.unsigned_abs() as usize]);
        let si_suffix = match power {
            0 => Some(""),
            -9 => Some("n"),
            -6 => Some("u"),
            -3 => Some("m"),
            3 => Some("k"),
            6 => Some("M"),
            9 => Some("G"),
            12 => Some("T"),
            15 => Some("P"),
            18 => Some("E"),
            _ => None,
        };
        match (self.format, si_suffix) {
            (_, Some("")) => number,
            (QuantityFormat::DecimalSi | QuantityFormat::BinarySi, Some(suffix)) => number + suffix,
            // No suffix reaches this far; the exponent says the same without loss.
            _ => format!("{number}e{power}"),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNumber)
    }
}

struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = Quantity;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a quantity such as \"500m\" or \"1.5Gi\", or a number")
    }

    /// Spaces around the text are allowed in documents, though not on a command line.
    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text.trim()).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(number, QuantityFormat::DecimalSi))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
        Quantity::normal(i128::from(number), 0, QuantityFormat::DecimalSi)
            .ok_or_else(|| E::custom("the number does not fit a quantity"))
    }

    /// The decoder has already made a float of the text. Its shortest decimal text is what the
    /// writer meant, and from there on all is exact. The form follows what JSON writers do.
    fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
        let magnitude = number.abs();
        let text = if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
            format!("{number:e}")
        } else {
            number.to_string()
        };
        Quantity::parse(&text).map_err(E::custom)
    }

    /// A null is an amount of nothing.
    fn visit_unit<E: Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}
