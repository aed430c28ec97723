//! Durations as Go writes them: `1m0s`, `1.5s`, `2h45m`.
//!
//! `KubeletConfiguration` and half of the flags hold such text, so a `GoDuration` accepts exactly
//! what Go's `time.ParseDuration` accepts and is written exactly as Go's `Duration.String` writes
//! it. It does no calendar arithmetic and knows no clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

#[cfg(test)]
mod tests;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the most negative duration; one more than the most positive one.
const MAGNITUDE_LIMIT: u64 = 1 << 63;

/// A signed span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    nanoseconds: i64,
}

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "duration {value:?}: {reason}; expected numbers with units, such as \"300ms\", \"1.5h\" or \"2h45m\""
)]
pub struct DurationError {
    /// The text as it was given.
    pub value: String,
    /// The first thing that is wrong with it.
    pub reason: DurationReason,
}

/// What is wrong with a text that should be a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationReason {
    /// Nothing there, or only a sign.
    #[error("it is empty")]
    Empty,
    /// A unit or another character stands where a number should.
    #[error("a number is missing before {at:?}")]
    MissingNumber {
        /// The rest of the text, from where the number should have started.
        at: String,
    },
    /// A number without a unit.
    #[error("a number has no unit (ns, us, ms, s, m or h)")]
    MissingUnit,
    /// A unit that is none.
    #[error("unknown unit {unit:?} (known: ns, us, ms, s, m, h)")]
    UnknownUnit {
        /// The unit as it was given.
        unit: String,
    },
    /// More than about 292 years.
    #[error("it does not fit into 64 bits of nanoseconds (about 292 years)")]
    OutOfRange,
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self::from_nanos(0);
    /// The longest span there is.
    pub const MAX: Self = Self::from_nanos(i64::MAX);
    /// The longest span backwards.
    pub const MIN: Self = Self::from_nanos(i64::MIN);

    /// That many nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self { nanoseconds }
    }

    /// That many milliseconds; spans beyond 292 years become the longest span.
    pub const fn from_millis(milliseconds: i64) -> Self {
        Self::from_nanos(milliseconds.saturating_mul(MILLISECOND.cast_signed()))
    }

    /// That many seconds; spans beyond 292 years become the longest span.
    pub const fn from_secs(seconds: i64) -> Self {
        Self::from_nanos(seconds.saturating_mul(SECOND.cast_signed()))
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanoseconds
    }

    /// The span as the standard library has it, which knows no negative spans.
    pub fn as_std(self) -> Option<Duration> {
        u64::try_from(self.nanoseconds).ok().map(Duration::from_nanos)
    }

    /// Whether the span is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.nanoseconds == 0
    }

    /// Whether the span points backwards.
    pub const fn is_negative(self) -> bool {
        self.nanoseconds < 0
    }

    /// Reads a duration.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        parse_signed(text).map_err(|reason| DurationError { value: text.to_owned(), reason })
    }
}

fn parse_signed(text: &str) -> Result<GoDuration, DurationReason> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned == "0" {
        return Ok(GoDuration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(DurationReason::Empty);
    }
    let mut total: u64 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (nanoseconds, after) = parse_term(rest)?;
        // Two terms of exactly 2^63 ns wrap to zero in Go, and so they do here: both limits are
        // checked against the sum only, and the sum of two such terms is exactly 2^64.
        total = total.wrapping_add(nanoseconds);
        if total > MAGNITUDE_LIMIT {
            return Err(DurationReason::OutOfRange);
        }
        rest = after;
    }
    if negative {
        return Ok(GoDuration::from_nanos(total.cast_signed().wrapping_neg()));
    }
    i64::try_from(total).map(GoDuration::from_nanos).map_err(|_| DurationReason::OutOfRange)
}

/// One number with its unit: the nanoseconds it stands for, and the text behind it.
fn parse_term(text: &str) -> Result<(u64, &str), DurationReason> {
    let (whole_digits, rest) = split_digits(text);
    let (fraction_digits, rest) = match rest.strip_prefix('.') {
        Some(behind_point) => split_digits(behind_point),
        None => ("", rest),
    };
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return Err(DurationReason::MissingNumber { at: text.to_owned() });
    }
    let whole = whole_number(whole_digits)?;
    let unit_length =
        rest.bytes().position(|byte| byte == b'.' || byte.is_ascii_digit()).unwrap_or(rest.len());
    let (unit_name, rest) = rest.split_at(unit_length);
    let unit = unit_nanoseconds(unit_name)?;
    if whole > MAGNITUDE_LIMIT / unit {
        return Err(DurationReason::OutOfRange);
    }
    let nanoseconds = whole * unit + fraction_nanoseconds(fraction_digits, unit);
    if nanoseconds > MAGNITUDE_LIMIT {
        return Err(DurationReason::OutOfRange);
    }
    Ok((nanoseconds, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    let length = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(length)
}

fn whole_number(digits: &str) -> Result<u64, DurationReason> {
    if digits.is_empty() {
        return Ok(0);
    }
    match digits.parse::<u64>() {
        Ok(number) if number <= MAGNITUDE_LIMIT => Ok(number),
        _ => Err(DurationReason::OutOfRange),
    }
}

fn unit_nanoseconds(name: &str) -> Result<u64, DurationReason> {
    match name {
        "" => Err(DurationReason::MissingUnit),
        "ns" => Ok(1),
        // The micro sign U+00B5 and the Greek letter U+03BC look alike and both are taken.
        "us" | "\u{b5}s" | "\u{3bc}s" => Ok(MICROSECOND),
        "ms" => Ok(MILLISECOND),
        "s" => Ok(SECOND),
        "m" => Ok(MINUTE),
        "h" => Ok(HOUR),
        _ => Err(DurationReason::UnknownUnit { unit: name.to_owned() }),
    }
}

/// The fraction of one unit in nanoseconds, cut off, always less than one unit.
///
/// Go does this step in binary floating point and drops digits past 63 bits. A config file must
/// mean the same nanosecond on both agents, so this is the one place where a float is right.
fn fraction_nanoseconds(digits: &str, unit: u64) -> u64 {
    let mut numerator: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in digits.bytes().map(|byte| u64::from(byte - b'0')) {
        if numerator > (MAGNITUDE_LIMIT - 1) / 10 {
            break;
        }
        let next = numerator * 10 + digit;
        if next > MAGNITUDE_LIMIT {
            break;
        }
        numerator = next;
        scale *= 10.0;
    }
    (numerator as f64 * (unit as f64 / scale)) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.nanoseconds.unsigned_abs();
        let mut text = String::new();
        if self.nanoseconds < 0 {
            text.push('-');
        }
        match magnitude {
            0 => text.push_str("0s"),
            1..MICROSECOND => push_decimal(&mut text, magnitude, 1, "ns"),
            MICROSECOND..MILLISECOND => push_decimal(&mut text, magnitude, MICROSECOND, "\u{b5}s"),
            MILLISECOND..SECOND => push_decimal(&mut text, magnitude, MILLISECOND, "ms"),
            _ => {
                // Once a unit is named all the smaller ones follow, also when they are zero.
                if magnitude >= HOUR {
                    text.push_str(&format!("{}h", magnitude / HOUR));
                }
                if magnitude >= MINUTE {
                    text.push_str(&format!("{}m", magnitude % HOUR / MINUTE));
                }
                push_decimal(&mut text, magnitude % MINUTE, SECOND, "s");
            }
        }
        out.pad(&text)
    }
}

/// Appends `amount / unit` with only as many decimals as it needs.
fn push_decimal(text: &mut String, amount: u64, unit: u64, name: &str) {
    text.push_str(&(amount / unit).to_string());
    let remainder = amount % unit;
    if remainder != 0 {
        let width = unit.ilog10() as usize;
        let decimals = format!("{remainder:0width$}");
        text.push('.');
        text.push_str(decimals.trim_end_matches('0'));
    }
    text.push_str(name);
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurationVisitor;
        impl Visitor<'_> for DurationVisitor {
            type Value = GoDuration;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a duration such as \"1m30s\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<GoDuration, E> {
                GoDuration::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(DurationVisitor)
    }
}
