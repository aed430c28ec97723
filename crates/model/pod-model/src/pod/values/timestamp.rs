//! A point in time as the API writes it: RFC 3339, whole seconds, UTC.
//!
//! The rule it keeps: every offset is read and turned into UTC; parts of a second are cut off, as
//! the API cuts them. Reads no clock.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::pod::form::{Form, Place, Shape};

const SECONDS_PER_DAY: i64 = 86_400;

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

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01, with years that begin in March so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
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

impl Form for Timestamp {
    fn read(place: &dyn Place) -> Option<Self> {
        let read = match place.shape() {
            Shape::Text(text) => Self::parse(text),
            _ => None,
        };
        if read.is_none() {
            place.refuse("a time, such as \"2026-01-02T03:04:05Z\"");
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
