//! A point in time as the API writes it: RFC 3339, whole seconds, UTC.
//!
//! The rule it keeps: every offset is read and turned into UTC; parts of a second are cut off, as
//! the API cuts them. Reads no clock.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::calendar::{SECONDS_PER_DAY, civil_from_days, days_from_civil, days_in_month};
use crate::pod::codec::{DecodeNode, FieldCodec, NodeShape};

/// Seconds since 1970, UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads `2026-01-02T03:04:05Z`, with or without parts of a second, or with an offset.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_once('T')?;
        let days = parse_date(date)?;
        let zone_at = rest.find(['Z', '+', '-'])?;
        let (clock, zone) = rest.split_at(zone_at);
        let seconds = parse_clock(clock)?;
        let offset = parse_zone(zone)?;
        Some(Self(days * SECONDS_PER_DAY + seconds - offset))
    }
}

fn parse_date(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let fits = parts.next().is_none() && (1..=12).contains(&month) && day >= 1;
    (fits && day <= days_in_month(year, month)).then(|| days_from_civil(year, month, day))
}

fn parse_clock(text: &str) -> Option<i64> {
    let (whole, fraction) = match text.split_once(['.', ',']) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !fraction.is_none_or(plain) {
        return None;
    }
    let mut parts = whole.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = digits(parts.next()?, 2)?;
    let fits = parts.next().is_none() && hour < 24 && minute < 60 && second < 60;
    fits.then_some(hour * 3600 + minute * 60 + second)
}

fn parse_zone(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hour, minute) = text.get(1..)?.split_once(':')?;
    let (hour, minute) = (digits(hour, 2)?, digits(minute, 2)?);
    (hour <= 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(SECONDS_PER_DAY));
        let seconds = self.0.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FieldCodec for Timestamp {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        let read = match node.shape() {
            NodeShape::Text(text) => Self::parse(text),
            _ => None,
        };
        if read.is_none() {
            node.refuse("a time, such as \"2026-01-02T03:04:05Z\"");
        }
        read
    }

    fn is_unset(&self) -> bool {
        false
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}
