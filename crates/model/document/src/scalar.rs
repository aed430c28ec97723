//! The meaning of an unquoted YAML scalar, by the YAML 1.1 rules of the reader that Kubernetes
//! uses.
//!
//! The rule it keeps: `yes`, `on`, `0644`, `0b11`, `1_000` and `.inf` mean what they mean there,
//! which is not what YAML 1.2 says. Any other scalar is a string.

use super::{Number, Value};

/// An explicit tag on a scalar, as far as it changes what the scalar means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarTag {
    None,
    String,
    Bool,
    Integer,
    Float,
    Null,
    Timestamp,
    Binary,
    /// An application-specific tag: the text stays text.
    Custom,
}

impl ScalarTag {
    pub(super) fn from_parts(handle: &str, suffix: &str) -> Self {
        match (handle, suffix) {
            ("tag:yaml.org,2002:" | "!!", name) => match name {
                "str" => Self::String,
                "bool" => Self::Bool,
                "int" => Self::Integer,
                "float" => Self::Float,
                "null" => Self::Null,
                "timestamp" => Self::Timestamp,
                "binary" => Self::Binary,
                _ => Self::Custom,
            },
            _ => Self::Custom,
        }
    }
}

/// Resolves a scalar that is plain or explicitly tagged.
pub(super) fn resolve(text: &str, tag: ScalarTag) -> Result<Value, String> {
    match tag {
        ScalarTag::String | ScalarTag::Custom => return Ok(Value::String(text.to_owned())),
        ScalarTag::Binary => return decode_binary(text).map(Value::String),
        ScalarTag::Timestamp if looks_like_date(text) => return Ok(Value::String(text.to_owned())),
        _ => {}
    }
    let value = resolve_word(text);
    let agrees = match (tag, &value) {
        (ScalarTag::None, _) => true,
        (ScalarTag::Bool, Value::Bool(_)) | (ScalarTag::Null, Value::Null) => true,
        (ScalarTag::Float, Value::Number(_)) => true,
        (ScalarTag::Integer, Value::Number(_)) => is_integer_word(text),
        _ => false,
    };
    if !agrees {
        return Err("the tag does not fit the value".to_owned());
    }
    match value {
        Value::Number(Number::Float(number)) if !number.is_finite() => {
            Err("not a number that a configuration can hold".to_owned())
        }
        value => Ok(value),
    }
}

/// Whether a text can be written without quotes and still reads back as that text.
pub fn is_plain_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    let starts = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'/');
    let ends = !text.ends_with(':');
    let plain = bytes.all(|each| {
        each.is_ascii_alphanumeric() || matches!(each, b'_' | b'.' | b'/' | b'-' | b':' | b'%')
    });
    starts && ends && plain && matches!(resolve_word(text), Value::String(_))
}

fn resolve_word(text: &str) -> Value {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        ".nan" | ".NaN" | ".NAN" => Value::Number(Number::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            Value::Number(Number::Float(f64::INFINITY))
        }
        "-.inf" | "-.Inf" | "-.INF" => Value::Number(Number::Float(f64::NEG_INFINITY)),
        _ => resolve_number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn resolve_number(text: &str) -> Option<Number> {
    let first = text.bytes().next()?;
    if first == b'.' {
        let plain = without_separators(text)?;
        return is_decimal_float(&plain).then(|| normalize_float(plain.parse().ok())).flatten();
    }
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-')) || looks_like_date(text) {
        return None;
    }
    let plain = text.replace('_', "");
    if let Some(whole) = parse_integer(&plain) {
        return Some(Number::Integer(whole));
    }
    is_decimal_float(&plain).then(|| normalize_float(plain.parse().ok())).flatten()
}

/// When converted to JSON a float without a fraction loses its point, so `1e3` fits an integer
/// field.
fn normalize_float(number: Option<f64>) -> Option<Number> {
    let number = number?;
    if !number.is_finite() {
        return None;
    }
    if number.fract() == 0.0 && number.abs() < 1e21 {
        // Through its shortest decimal text: -9223372036854775809 becomes ...776000, not ...775808.
        return format!("{number}").parse().ok().map(Number::Integer);
    }
    Some(Number::Float(number))
}

/// Underscores may stand between digits.
fn without_separators(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let fits = |(at, byte): (usize, &u8)| {
        *byte != b'_' || (digit(at.checked_sub(1)) && digit(Some(at + 1)))
    };
    bytes.iter().enumerate().all(fits).then(|| text.replace('_', ""))
}

fn is_integer_word(text: &str) -> bool {
    parse_integer(&text.replace('_', "")).is_some()
}

/// A signed integer with a base prefix: 0x, 0o, 0b, or a bare leading zero for octal.
fn parse_integer(plain: &str) -> Option<i128> {
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    // Signed 64 bits, or unsigned 64 bits: anything larger becomes a float or a string.
    let signed = plain.starts_with(['+', '-']);
    let value = if negative { -magnitude } else { magnitude };
    let fits = i64::try_from(value).is_ok() || (!signed && u64::try_from(value).is_ok());
    fits.then_some(value)
}

/// `[-+]?(.digits | digits[.digits])[e[-+]digits]`
fn is_decimal_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|each| each.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    let exponent_fits = exponent
        .is_none_or(|exponent| digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    mantissa_fits && exponent_fits
}

/// Dates stay strings; without this `2001-1-2` would still be one, but `2001-` prefixes of numbers
/// are only ever dates.
fn looks_like_date(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits == 4 && text.as_bytes().get(4) == Some(&b'-')
}

fn decode_binary(text: &str) -> Result<String, String> {
    const REFUSED: &str = "!!binary holds no base64";
    let mut bytes = Vec::new();
    let (mut held, mut bits) = (0_u32, 0_u32);
    let mut symbols = 0_usize;
    let body: String = text.chars().filter(|each| !matches!(each, '\n' | '\r')).collect();
    let data = body.trim_end_matches('=');
    if body.len() - data.len() > 2 || !body.len().is_multiple_of(4) {
        return Err(REFUSED.to_owned());
    }
    for symbol in data.bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(REFUSED.to_owned()),
        };
        symbols += 1;
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(((held >> bits) & 0xff) as u8);
            held &= (1 << bits) - 1;
        }
    }
    if symbols % 4 == 1 {
        return Err(REFUSED.to_owned());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
