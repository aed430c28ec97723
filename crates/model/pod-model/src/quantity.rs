//! Resource quantities as Kubernetes writes them: `100m`, `1.5Gi`, `2e3`.
//!
//! A quantity is an exact decimal number and the family of suffixes it is written in. The rules it
//! keeps: no floating point, no silent loss. Parts smaller than a nano unit round away from zero
//! while the text is read, amounts in the binary family stop at 2^63-1, and everything after that
//! is exact or refused.
//!
//! Limits, and where they differ from the reference (which has unbounded decimals):
//! - A number needs at most 38 significant decimal digits (after sub-nano digits are rounded
//!   away and trailing zeros taken off) and a power of ten that fits 32 bits. Text beyond that is
//!   refused; a sum beyond that is `None`. Within it all is exact, however large the exponent.
//! - `value` and `milli_value` stop at the ends of `i64`, where the reference wraps or gives 0.
//!   They round away from zero always; the reference does so only for amounts it holds as 64 bits.
//! - Writing always gives the canonical form. The reference echoes some text that is almost
//!   canonical (`+1`, `1.500`), loses the power of ten of amounts above 999E, and writes sums above
//!   2^63-1 with binary suffixes that it would cap when reading them; we write those amounts with
//!   an exponent or a decimal suffix, so that what is written always reads back as the same amount.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

mod parse;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use parse::plain_integer;

/// The smallest power of ten that a quantity resolves: nano.
const SMALLEST_POWER: i32 = -9;

/// The family of suffixes in which a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QuantityFormat {
    /// Powers of 1000: `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// A power of ten: `e3`.
    DecimalExponent,
}

/// An exact amount of something countable: CPU, bytes, devices.
///
/// Equality, order and hash go by amount alone: `1Ki`, `1024` and `1.024e3` are equal. Ask
/// [`Quantity::canonical_eq`] whether two are also written the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// Never a multiple of ten unless zero, so that equal amounts have equal fields.
    mantissa: i128,
    /// The power of ten; at least that of nano, and zero for the amount zero.
    exponent: i32,
    format: QuantityFormat,
}

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {value:?}: {reason}")]
pub struct QuantityError {
    /// The text as it was given.
    pub value: String,
    /// The first thing that is wrong with it.
    pub reason: QuantityReason,
}

/// What is wrong with a text that should be a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityReason {
    /// Not a number followed by a suffix.
    #[error("expected a number and a suffix, such as \"500m\", \"1.5Gi\" or \"2e3\"")]
    Malformed,
    /// Something is in the place of the suffix, but it is not one.
    #[error(
        "unknown suffix; expected none or one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e and a whole number"
    )]
    UnknownSuffix,
    /// A suffix without a number, of a kind that needs one.
    #[error("the number is missing before the suffix")]
    MissingNumber,
    /// More digits or a larger power of ten than a quantity holds.
    #[error("it needs more than 38 significant digits or a power of ten beyond 32 bits")]
    OutOfRange,
}

impl Quantity {
    /// Nothing, written in the decimal family.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: QuantityFormat::DecimalSi };

    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::quantity(text).map_err(|reason| QuantityError { value: text.to_owned(), reason })
    }

    /// A whole number of units.
    pub fn from_units(units: i64, format: QuantityFormat) -> Self {
        Self::small(i128::from(units), 0, format)
    }

    /// A number of thousandths.
    pub fn from_milli(thousandths: i64, format: QuantityFormat) -> Self {
        Self::small(i128::from(thousandths), -3, format)
    }

    /// The same amount, written in another family.
    pub const fn with_format(self, format: QuantityFormat) -> Self {
        Self { format, ..self }
    }

    /// The family in which it is written.
    pub const fn format(&self) -> QuantityFormat {
        self.format
    }

    /// Whether the amount is zero.
    pub const fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub const fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The amount in whole units, rounded away from zero, kept within `i64`.
    pub fn value(&self) -> i64 {
        self.saturating_in_units_of(0)
    }

    /// The amount in thousandths, rounded away from zero, kept within `i64`.
    pub fn milli_value(&self) -> i64 {
        self.saturating_in_units_of(-3)
    }

    /// The amount in whole units, rounded away from zero, or nothing if `i64` cannot hold it.
    pub fn checked_value(&self) -> Option<i64> {
        self.in_units_of(0).and_then(|units| i64::try_from(units).ok())
    }

    /// The amount in thousandths, rounded away from zero, or nothing if `i64` cannot hold it.
    pub fn checked_milli_value(&self) -> Option<i64> {
        self.in_units_of(-3).and_then(|thousandths| i64::try_from(thousandths).ok())
    }

    /// The sum. It is written like the first amount, or like the second if the first is zero.
    /// Nothing comes out when the exact sum does not fit.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() { other.format } else { self.format };
        if other.is_zero() {
            return Some(self.with_format(format));
        }
        if self.is_zero() {
            return Some(*other);
        }
        let exponent = self.exponent.min(other.exponent);
        let sum = self.mantissa_at(exponent)?.checked_add(other.mantissa_at(exponent)?)?;
        Self::normal(sum, exponent, format)
    }

    /// The difference, written as [`Quantity::checked_add`] writes a sum.
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        self.checked_add(&other.negated())
    }

    /// The amount times a whole number, written alike.
    pub fn checked_mul(&self, factor: i64) -> Option<Self> {
        let product = self.mantissa.checked_mul(i128::from(factor))?;
        Self::normal(product, self.exponent, self.format)
    }

    /// The amount with the other sign.
    pub const fn negated(&self) -> Self {
        // The most negative mantissa is never made, so this cannot overflow.
        Self { mantissa: self.mantissa.saturating_neg(), ..*self }
    }

    /// Whether both have the same amount and are written the same.
    pub fn canonical_eq(&self, other: &Self) -> bool {
        self == other && (self.format == other.format || self.to_string() == other.to_string())
    }

    /// For mantissas of 64 bits, whose trailing zeros cannot overflow the exponent.
    fn small(mantissa: i128, exponent: i32, format: QuantityFormat) -> Self {
        Self::normal(mantissa, exponent, format).unwrap_or(Self::ZERO)
    }

    /// Takes trailing zeros off; nothing comes out if a field cannot hold the result.
    fn normal(mantissa: i128, exponent: i32, format: QuantityFormat) -> Option<Self> {
        if mantissa == 0 {
            return Some(Self::ZERO.with_format(format));
        }
        if mantissa == i128::MIN {
            return None;
        }
        let (mut mantissa, mut exponent) = (mantissa, exponent);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.checked_add(1)?;
        }
        Some(Self { mantissa, exponent, format })
    }

    /// The mantissa at a power of ten not above its own, if 128 bits hold it.
    fn mantissa_at(&self, exponent: i32) -> Option<i128> {
        let places = u32::try_from(i64::from(self.exponent) - i64::from(exponent)).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(places)?)
    }

    /// The amount counted in `10^power`, rounded away from zero.
    fn in_units_of(&self, power: i32) -> Option<i128> {
        if self.exponent >= power || self.is_zero() {
            return self.mantissa_at(power.min(self.exponent));
        }
        let places = power.abs_diff(self.exponent);
        let divisor = 10_i128.checked_pow(places)?;
        let rounding = if self.mantissa % divisor == 0 { 0 } else { self.mantissa.signum() };
        Some(self.mantissa / divisor + rounding)
    }

    fn saturating_in_units_of(&self, power: i32) -> i64 {
        let limit = if self.mantissa < 0 { i64::MIN } else { i64::MAX };
        self.in_units_of(power).and_then(|count| i64::try_from(count).ok()).unwrap_or(limit)
    }

    /// The amount as an integer, if it is one and 128 bits hold it.
    fn exact_integer(&self) -> Option<i128> {
        if self.exponent < 0 { None } else { self.mantissa_at(0) }
    }

    /// Compares magnitudes. Numbers with a different count of places before the point differ by
    /// that alone; numbers with the same count need at most one scaling, and where even that
    /// overflows, the scaled one is the larger, since the other one did fit.
    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        let places = |quantity: &Self| {
            i64::from(quantity.mantissa.unsigned_abs().ilog10()) + i64::from(quantity.exponent)
        };
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        places(self).cmp(&places(other)).then_with(|| {
            let shift = 10_u128.checked_pow(self.exponent.abs_diff(other.exponent));
            let scaled = |mantissa: i128| shift?.checked_mul(mantissa.unsigned_abs());
            let (left, right) = (self.mantissa.unsigned_abs(), other.mantissa.unsigned_abs());
            if self.exponent >= other.exponent {
                scaled(self.mantissa).map_or(Ordering::Greater, |left| left.cmp(&right))
            } else {
                scaled(other.mantissa).map_or(Ordering::Less, |right| left.cmp(&right))
            }
        })
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| match self.sign() {
            -1 => other.cmp_magnitude(self),
            _ => self.cmp_magnitude(other),
        })
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.mantissa, self.exponent) == (other.mantissa, other.exponent)
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.mantissa, self.exponent).hash(state);
    }
}
