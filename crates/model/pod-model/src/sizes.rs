//! Sizes with a condition on them: positive sizes, the limit of a log file, eviction thresholds.
//!
//! Each is a quantity (or a share of a capacity) that only some values may have. The rules are the
//! reference kubelet's. Which signals exist and what a threshold leads to is decided elsewhere.

use std::fmt;

use crate::quantity::{self, Quantity, QuantityError, QuantityFormat};

#[cfg(test)]
mod tests;

/// A text that is no size of the kind wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Zero or less.
    #[error("size {value:?}: it must be more than zero")]
    NotPositive {
        /// The text as it was given.
        value: String,
    },
    /// A quantity, but not one that stands for a plain whole number of bytes.
    #[error(
        "size {value:?}: it must be a whole number of bytes without decimals that fits 64 bits, such as \"10Mi\""
    )]
    NotPlain {
        /// The text as it was given.
        value: String,
    },
}

/// Reads a size that must be more than zero.
pub fn parse_positive_size(text: &str) -> Result<Quantity, SizeError> {
    let size = Quantity::parse(text)?;
    if size.sign() <= 0 {
        return Err(SizeError::NotPositive { value: text.to_owned() });
    }
    Ok(size)
}

/// How large a container's log may grow before it is rotated (`containerLogMaxSize`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogSizeLimit {
    /// Rotate beyond that many bytes.
    Bytes(u64),
    /// Never rotate: what a negative size says.
    Unlimited,
}

impl LogSizeLimit {
    /// Reads a limit. Text that the reference can only hold in its wide form is refused as it is
    /// there: decimals in the binary family (`1.5Gi`), fractions, and more than about 2^47 bytes in
    /// the binary family.
    pub fn parse(text: &str) -> Result<Self, SizeError> {
        let plain = quantity::plain_integer(text)
            .map_err(|reason| QuantityError { value: text.to_owned(), reason })?;
        let bytes = plain.ok_or_else(|| SizeError::NotPlain { value: text.to_owned() })?;
        Ok(u64::try_from(bytes).map_or(Self::Unlimited, Self::Bytes))
    }
}

/// A share of a whole, never negative and always finite.
///
/// Held as the same 32-bit float as in the reference, so that both evict at the same byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentage {
    percent: f32,
}

// A NaN is never let in, so equality is an equivalence.
impl Eq for Percentage {}

impl Percentage {
    /// The share as a fraction: 0.1 for 10%.
    pub const fn fraction(self) -> f32 {
        self.percent / 100.0
    }
}

/// A text that is no eviction threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// Neither a percentage nor a quantity.
    #[error("threshold: {0}")]
    Quantity(#[from] QuantityError),
    /// Ends with % but does not start with a number.
    #[error("threshold {value:?}: expected a number before '%'")]
    NotANumber {
        /// The text as it was given.
        value: String,
    },
    /// Outside of what a share of a whole can be.
    #[error("threshold {value:?}: a percentage must be from 0% to 100%")]
    PercentageRange {
        /// The text as it was given.
        value: String,
    },
    /// A quantity or share that must be more than zero.
    #[error("threshold {value:?}: it must be more than zero")]
    NotPositive {
        /// The text as it was given.
        value: String,
    },
    /// A quantity that must not be less than zero.
    #[error("minimum reclaim {value:?}: it must not be negative")]
    Negative {
        /// The text as it was given.
        value: String,
    },
}

/// An eviction threshold or a minimum to reclaim: an amount, or a share of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdValue {
    /// A fixed amount.
    Quantity(Quantity),
    /// A share of the capacity.
    Percentage(Percentage),
}

impl ThresholdValue {
    /// Reads a threshold. `0%` and `100%`, spelled exactly so, switch the signal off: nothing comes
    /// out. Shares go from 0 to 100, amounts must be positive.
    pub fn parse_threshold(text: &str) -> Result<Option<Self>, ThresholdError> {
        let value = || text.to_owned();
        if text == "0%" || text == "100%" {
            return Ok(None);
        }
        if text.ends_with('%') {
            let percentage = parse_percentage(text)?;
            if !(0.0..=1.0).contains(&percentage.fraction()) {
                return Err(ThresholdError::PercentageRange { value: value() });
            }
            return Ok(Some(Self::Percentage(percentage)));
        }
        let amount = Quantity::parse(text)?;
        if amount.sign() <= 0 {
            return Err(ThresholdError::NotPositive { value: value() });
        }
        Ok(Some(Self::Quantity(amount)))
    }

    /// Reads the least to reclaim. Shares must be positive (and may pass 100%), amounts must not be
    /// negative.
    pub fn parse_minimum_reclaim(text: &str) -> Result<Self, ThresholdError> {
        let value = || text.to_owned();
        if text.ends_with('%') {
            let percentage = parse_percentage(text)?;
            if percentage.fraction() <= 0.0 {
                return Err(ThresholdError::NotPositive { value: value() });
            }
            return Ok(Self::Percentage(percentage));
        }
        let amount = Quantity::parse(text)?;
        if amount.sign() < 0 {
            return Err(ThresholdError::Negative { value: value() });
        }
        Ok(Self::Quantity(amount))
    }

    /// The amount meant, given the capacity. A share is cut to whole units.
    pub fn amount_of(&self, capacity: &Quantity) -> Quantity {
        match self {
            Self::Quantity(amount) => *amount,
            Self::Percentage(percentage) => {
                let units = capacity.value() as f64 * f64::from(percentage.fraction());
                Quantity::from_units(units as i64, QuantityFormat::BinarySi)
            }
        }
    }
}

/// Reads the number before one or more percent signs; single underscores may stand between digits.
/// Unlike the reference this takes neither `nan`, with which no comparison would ever hold, nor
/// `inf`, nor hexadecimal floats.
fn parse_percentage(text: &str) -> Result<Percentage, ThresholdError> {
    let number = without_separators(text.trim_end_matches('%'))
        .and_then(|digits| digits.parse::<f32>().ok())
        .filter(|number| number.is_finite())
        .ok_or_else(|| ThresholdError::NotANumber { value: text.to_owned() })?;
    // Adding zero turns a negative zero into zero.
    Ok(Percentage { percent: number + 0.0 })
}

/// The text without its underscores, if each of them separates two digits.
fn without_separators(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
    let separates = |index: usize| index > 0 && is_digit(index - 1) && is_digit(index + 1);
    text.match_indices('_').all(|(index, _)| separates(index)).then(|| text.replace('_', ""))
}

impl fmt::Display for Percentage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.percent)
    }
}

impl fmt::Display for ThresholdValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(amount) => amount.fmt(out),
            Self::Percentage(percentage) => percentage.fmt(out),
        }
    }
}
