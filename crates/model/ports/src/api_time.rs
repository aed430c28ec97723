//! A time as the API writes it: RFC 3339 text outside, nanoseconds since the epoch inside.
//!
//! Rule: total, reads no clock. Times that do not fit into nanoseconds (before 1677, after 2262)
//! saturate; text that is not a time is an error.

use std::fmt;

use pod_model::calendar::{SECONDS_PER_DAY, civil_from_days, days_from_civil, days_in_month};
use serde::de::{self, Deserialize, Deserializer, Visitor};

const SECOND: i64 = 1_000_000_000;

/// Nanoseconds since the Unix epoch, on the clock of the component that wrote the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiTime(i64);

impl ApiTime {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339: `2026-01-02T03:04:05Z`, with or without a fraction, or with `+01:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = bytes.get(from..to)?;
            digits.iter().all(u8::is_ascii_digit).then_some(())?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        };
        let mark = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|b| allowed.contains(b));
        let marks = mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":");
        if !(marks && mark(16, b":")) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let in_range = (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !in_range {
            return None;
        }
        let (fraction, offset_at) = fraction(bytes)?;
        let offset = offset_seconds(bytes.get(offset_at..)?)?;
        let seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY
            + hour * 3600
            + minute * 60
            + second
            - offset;
        Some(Self(seconds.saturating_mul(SECOND).saturating_add(fraction)))
    }

    /// As the API writes an ordinary time: whole seconds, cut off.
    pub fn to_seconds_text(self) -> String {
        self.text(0)
    }

    /// As the API writes the times of leases: microseconds, cut off.
    pub fn to_micros_text(self) -> String {
        self.text(6)
    }

    fn text(self, digits: usize) -> String {
        let (seconds, nanos) = (self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND));
        let (days, rest) =
            (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        let fraction = match digits {
            0 => String::new(),
            _ => format!(".{:06}", nanos / 1000),
        };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
    }
}

/// The nanoseconds after the point, and where the offset begins.
fn fraction(bytes: &[u8]) -> Option<(i64, usize)> {
    if bytes.get(19) != Some(&b'.') {
        return Some((0, 19));
    }
    let digits: Vec<i64> = bytes
        .iter()
        .skip(20)
        .take_while(|byte| byte.is_ascii_digit())
        .map(|byte| i64::from(byte - b'0'))
        .collect();
    if digits.is_empty() {
        return None;
    }
    let nanos = (0..9).fold(0, |sum, at| sum * 10 + digits.get(at).copied().unwrap_or(0));
    Some((nanos, 20 + digits.len()))
}

fn offset_seconds(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
            let hours = digit(h1)? * 10 + digit(h2)?;
            let minutes = digit(m1)? * 10 + digit(m2)?;
            let seconds = hours * 3600 + minutes * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

impl<'de> Deserialize<'de> for ApiTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ApiTimeVisitor;
        impl Visitor<'_> for ApiTimeVisitor {
            type Value = ApiTime;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a time such as 2026-01-02T03:04:05Z")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ApiTime, E> {
                ApiTime::parse(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(ApiTimeVisitor)
    }
}

#[cfg(test)]
mod tests;
