//! Sets of CPU (or memory node) numbers in the list format of Linux: `0-3,7`.
//!
//! Kept as sorted ranges that neither touch nor overlap, so that equal sets have equal fields and
//! a text such as `0-4294967295` costs no more than `0`. Numbers are 32 bits wide; the reference
//! would take larger ones from a text and find later that no machine has them. Knows nothing about
//! which CPUs exist.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

#[cfg(test)]
mod tests;

/// A set of CPU numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    ranges: Vec<CpuRange>,
}

/// A run of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CpuRange {
    first: u32,
    last: u32,
}

/// A text that is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// Something between commas or around a hyphen is not a number.
    #[error("CPU list {list:?}: {part:?} is not a CPU number; expected a list such as \"0-3,7\"")]
    NotANumber {
        /// The whole text.
        list: String,
        /// The part that should be a number.
        part: String,
    },
    /// A range that runs backwards.
    #[error("CPU list {list:?}: the range {range:?} ends before it starts")]
    Backwards {
        /// The whole text.
        list: String,
        /// The range.
        range: String,
    },
    /// A number that no CPU can have.
    #[error("CPU list {list:?}: {part:?} is larger than any CPU number (at most {})", u32::MAX)]
    TooLarge {
        /// The whole text.
        list: String,
        /// The number.
        part: String,
    },
}

impl CpuSet {
    /// The set without members.
    pub const fn empty() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Reads a list; the empty text is the empty set.
    pub fn parse(list: &str) -> Result<Self, CpuSetError> {
        if list.is_empty() {
            return Ok(Self::empty());
        }
        let ranges =
            list.split(',').map(|part| parse_range(list, part)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::from_ranges(ranges))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        let count: u64 = self.ranges.iter().map(|range| range.count()).sum();
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the number is a member.
    pub fn contains(&self, cpu: u32) -> bool {
        let behind = self.ranges.partition_point(|range| range.first <= cpu);
        behind.checked_sub(1).is_some_and(|index| cpu <= self.ranges[index].last)
    }

    /// Whether every member of this set is also one of the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// The members in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|range| range.first..=range.last)
    }

    /// The members of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.ranges.iter().chain(&other.ranges).copied().collect())
    }

    /// The members of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut common = Vec::new();
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            let overlap =
                CpuRange { first: one.first.max(two.first), last: one.last.min(two.last) };
            let left_ends_first = one.last <= two.last;
            if overlap.first <= overlap.last {
                common.push(overlap);
            }
            // Only the range that ends first can have no further overlap.
            if left_ends_first {
                left.next()
            } else {
                right.next()
            };
        }
        Self { ranges: common }
    }

    /// The members of this set that are not members of the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// Every 32-bit number that is not a member.
    fn complement(&self) -> Self {
        let mut gaps = Vec::new();
        let mut next = Some(0);
        for range in &self.ranges {
            if let (Some(first), Some(last)) = (next, range.first.checked_sub(1))
                && first <= last
            {
                gaps.push(CpuRange { first, last });
            }
            next = range.last.checked_add(1);
        }
        gaps.extend(next.map(|first| CpuRange { first, last: u32::MAX }));
        Self { ranges: gaps }
    }

    /// Sorts, then joins ranges that overlap or touch.
    fn from_ranges(mut ranges: Vec<CpuRange>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<CpuRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(before) if range.first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(range.last);
                }
                _ => joined.push(range),
            }
        }
        Self { ranges: joined }
    }
}

impl CpuRange {
    fn count(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }
}

fn parse_range(list: &str, part: &str) -> Result<CpuRange, CpuSetError> {
    let Some((first, last)) = part.split_once('-') else {
        let cpu = cpu_number(list, parse_integer(list, part)?, part)?;
        return Ok(CpuRange { first: cpu, last: cpu });
    };
    let (first_number, last_number) = (parse_integer(list, first)?, parse_integer(list, last)?);
    if first_number > last_number {
        return Err(CpuSetError::Backwards { list: list.to_owned(), range: part.to_owned() });
    }
    Ok(CpuRange {
        first: cpu_number(list, first_number, first)?,
        last: cpu_number(list, last_number, last)?,
    })
}

/// The end of a range may carry a sign, as it may for the reference; order refuses a negative one.
fn parse_integer(list: &str, part: &str) -> Result<i64, CpuSetError> {
    part.parse()
        .map_err(|_| CpuSetError::NotANumber { list: list.to_owned(), part: part.to_owned() })
}

fn cpu_number(list: &str, number: i64, part: &str) -> Result<u32, CpuSetError> {
    u32::try_from(number)
        .map_err(|_| CpuSetError::TooLarge { list: list.to_owned(), part: part.to_owned() })
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self::from_ranges(cpus.into_iter().map(|cpu| CpuRange { first: cpu, last: cpu }).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            if index > 0 {
                out.write_str(",")?;
            }
            if range.first == range.last {
                write!(out, "{}", range.first)?;
            } else {
                write!(out, "{}-{}", range.first, range.last)?;
            }
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        Self::parse(list)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CpuSetVisitor;
        impl Visitor<'_> for CpuSetVisitor {
            type Value = CpuSet;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a CPU list such as \"0-3,7\"")
            }

            fn visit_str<E: serde::de::Error>(self, list: &str) -> Result<CpuSet, E> {
                CpuSet::parse(list).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(CpuSetVisitor)
    }
}
