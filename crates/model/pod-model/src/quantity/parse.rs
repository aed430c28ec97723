//! From text to quantity: `sign digits . digits suffix`.
//!
//! The text is cut into its parts first, then the digits are worked on as digits, whatever their
//! number, so that rounding and the binary factor are exact before the result must fit anywhere.
//! Does not trim spaces and does not know JSON.

use super::{Quantity, QuantityFormat, QuantityReason, SMALLEST_POWER};

/// The parts of a quantity's text.
struct Literal<'text> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'text str,
    /// Digits after the point.
    fraction: &'text str,
    /// Whether there was any digit at all.
    has_digits: bool,
    suffix: Suffix,
}

/// What the number is multiplied with.
#[derive(Clone, Copy)]
enum Suffix {
    /// A power of ten, in one of the two decimal families.
    Ten { power: i32, format: QuantityFormat },
    /// A power of 1024.
    Kibi { power: u32 },
}

pub(super) fn quantity(text: &str) -> Result<Quantity, QuantityReason> {
    let literal = cut(text)?;
    if !literal.has_digits && literal.suffix.needs_digits() {
        return Err(QuantityReason::MissingNumber);
    }
    let format = literal.suffix.format();
    let mut digits = Digits::new(literal.whole, literal.fraction);
    if digits.is_zero() {
        return Ok(Quantity::ZERO.with_format(format));
    }
    match literal.suffix {
        Suffix::Ten { power, .. } => digits.exponent += i64::from(power),
        Suffix::Kibi { power } => (0..power).for_each(|_| digits.multiply_by_1024()),
    }
    digits.round_up_to_nano();
    digits.take_zeros_off();
    let magnitude = digits.into_quantity(format);
    let quantity = match literal.suffix {
        Suffix::Ten { .. } => magnitude.ok_or(QuantityReason::OutOfRange)?,
        Suffix::Kibi { .. } => cap_binary(magnitude),
    };
    Ok(if literal.negative { quantity.negated() } else { quantity })
}

/// The two rules of the binary family: at most 2^63-1 (what does not even fit is above that), and
/// fractions of one are written in the decimal family, which can show them.
fn cap_binary(magnitude: Option<Quantity>) -> Quantity {
    let most = Quantity::from_units(i64::MAX, QuantityFormat::BinarySi);
    let one = Quantity::from_units(1, QuantityFormat::BinarySi);
    match magnitude {
        Some(small) if small < one => small.with_format(QuantityFormat::DecimalSi),
        Some(fitting) if fitting < most => fitting,
        _ => most,
    }
}

/// The value as the reference's 64-bit form would have it: whole, written without decimals and
/// short enough. Some settings are refused by the reference when they need its wide form, even
/// where the amount itself would do (`1.5Gi`).
pub(crate) fn plain_integer(text: &str) -> Result<Option<i64>, QuantityReason> {
    let quantity = quantity(text)?;
    let literal = cut(text)?;
    let digits = literal.whole.len().max(1);
    let decimals = literal.fraction.len();
    let short = match literal.suffix {
        Suffix::Ten { power, .. } => {
            let scale = i64::from(power) - i64::try_from(decimals).unwrap_or(i64::MAX);
            digits + decimals <= 18 && scale >= 0
        }
        // Each factor of 1024 takes three of the fourteen decimal digits allowed.
        Suffix::Kibi { power } => decimals == 0 && digits + 3 * power as usize <= 14,
    };
    Ok(if short { quantity.exact_integer().and_then(|units| units.try_into().ok()) } else { None })
}

impl Suffix {
    fn format(self) -> QuantityFormat {
        match self {
            Self::Ten { format, .. } => format,
            Self::Kibi { .. } => QuantityFormat::BinarySi,
        }
    }

    /// The reference takes a lone suffix as zero, but not where it must use its wide decimals.
    fn needs_digits(self) -> bool {
        match self {
            Self::Ten { power, .. } => power < SMALLEST_POWER,
            Self::Kibi { power } => power >= 5,
        }
    }

    fn read(text: &str) -> Result<Self, QuantityReason> {
        let si = |power| Ok(Self::Ten { power, format: QuantityFormat::DecimalSi });
        match text {
            "n" => si(-9),
            "u" => si(-6),
            "m" => si(-3),
            "" => si(0),
            "k" => si(3),
            "M" => si(6),
            "G" => si(9),
            "T" => si(12),
            "P" => si(15),
            "E" => si(18),
            "Ki" => Ok(Self::Kibi { power: 1 }),
            "Mi" => Ok(Self::Kibi { power: 2 }),
            "Gi" => Ok(Self::Kibi { power: 3 }),
            "Ti" => Ok(Self::Kibi { power: 4 }),
            "Pi" => Ok(Self::Kibi { power: 5 }),
            "Ei" => Ok(Self::Kibi { power: 6 }),
            _ => Self::read_exponent(text),
        }
    }

    fn read_exponent(text: &str) -> Result<Self, QuantityReason> {
        let number = text.strip_prefix(['e', 'E']).ok_or(QuantityReason::UnknownSuffix)?;
        let power = number.parse::<i64>().map_err(|_| QuantityReason::UnknownSuffix)?;
        let power = i32::try_from(power).map_err(|_| QuantityReason::OutOfRange)?;
        Ok(Self::Ten { power, format: QuantityFormat::DecimalExponent })
    }
}

fn cut(text: &str) -> Result<Literal<'_>, QuantityReason> {
    if text.is_empty() {
        return Err(QuantityReason::Malformed);
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = split_while(unsigned, |byte| byte.is_ascii_digit());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(behind_point) => split_while(behind_point, |byte| byte.is_ascii_digit()),
        None => ("", rest),
    };
    check_suffix_shape(rest)?;
    Ok(Literal {
        negative,
        whole: whole.trim_start_matches('0'),
        fraction,
        has_digits: !whole.is_empty() || !fraction.is_empty(),
        suffix: Suffix::read(rest)?,
    })
}

/// Letters of known suffixes, a sign, digits: anything else is not even shaped like a suffix.
fn check_suffix_shape(text: &str) -> Result<(), QuantityReason> {
    let (_, rest) = split_while(text, |byte| b"eEinumkKMGTP".contains(&byte));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let (_, rest) = split_while(rest, |byte| byte.is_ascii_digit());
    if rest.is_empty() { Ok(()) } else { Err(QuantityReason::Malformed) }
}

/// Splits behind the leading bytes that fit. Only for tests that hold for ASCII alone.
fn split_while(text: &str, fits: impl Fn(u8) -> bool) -> (&str, &str) {
    let length = text.bytes().position(|byte| !fits(byte)).unwrap_or(text.len());
    text.split_at(length)
}

/// A decimal number of any length, its lowest digit first.
struct Digits {
    digits: Vec<u8>,
    exponent: i64,
}

impl Digits {
    fn new(whole: &str, fraction: &str) -> Self {
        let values = |text: &str| text.bytes().rev().map(|byte| byte - b'0').collect::<Vec<u8>>();
        let mut digits = values(fraction);
        digits.extend(values(whole));
        // A text in memory is far shorter than 2^63 bytes.
        let exponent = -i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let mut number = Self { digits, exponent };
        number.drop_leading_zeros();
        number
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    fn drop_leading_zeros(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
    }

    fn multiply_by_1024(&mut self) {
        let mut carry: u32 = 0;
        for digit in &mut self.digits {
            let product = u32::from(*digit) * 1024 + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }

    /// Cuts what is smaller than nano; if that was anything, the last place kept goes up by one.
    fn round_up_to_nano(&mut self) {
        let below = i64::from(SMALLEST_POWER).saturating_sub(self.exponent);
        let Ok(places @ 1..) = usize::try_from(below) else { return };
        let places = places.min(self.digits.len());
        let inexact = self.digits.drain(..places).any(|digit| digit != 0);
        self.exponent = i64::from(SMALLEST_POWER);
        if inexact {
            self.add_one();
        }
    }

    fn add_one(&mut self) {
        for digit in &mut self.digits {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.push(1);
    }

    fn take_zeros_off(&mut self) {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        self.exponent = self.exponent.saturating_add(i64::try_from(zeros).unwrap_or(i64::MAX));
    }

    fn into_quantity(self, format: QuantityFormat) -> Option<Quantity> {
        let exponent = i32::try_from(self.exponent).ok()?;
        let mantissa = self.digits.iter().rev().try_fold(0_i128, |number, digit| {
            number.checked_mul(10)?.checked_add(i128::from(*digit))
        })?;
        Quantity::normal(mantissa, exponent, format)
    }
}
