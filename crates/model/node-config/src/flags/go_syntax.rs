//! How Go's libraries parse the basic values of a command line: booleans, integers, and one CSV
//! record.
//!
//! Rule: accepts exactly what Go accepts, with the same meaning. Each error names what was
//! expected; the caller adds the flag and the value.

/// One of the twelve spellings that Go takes for true and false.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// An integer in Go's notation: decimal, or with 0x, 0o, 0b or a plain leading zero for octal;
/// underscores may stand between digits.
pub(super) fn parse_integer(text: &str, smallest: i64, largest: i64) -> Result<i64, String> {
    let expected = || format!("expected a whole number from {smallest} to {largest}");
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits, prefixed) = split_base(unsigned);
    let digits = without_underscores(digits, prefixed).ok_or_else(expected)?;
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return Err(expected());
    }
    let magnitude = i128::from(u64::from_str_radix(&digits, base).map_err(|_| expected())?);
    let value = if negative { -magnitude } else { magnitude };
    match i64::try_from(value) {
        Ok(value) if (smallest..=largest).contains(&value) => Ok(value),
        _ => Err(expected()),
    }
}

/// A float as Go parses it: decimal, with an exponent or without; NaN and infinities are rejected
/// here, since no flag means them.
pub(super) fn parse_float(text: &str) -> Result<f64, String> {
    let expected = || "expected a number, such as 0.1".to_owned();
    // Rust also parses "inf" and "nan".
    let plain =
        text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if plain && number.is_finite() => Ok(number),
        _ => Err(expected()),
    }
}

/// The base of a number, the digits after its prefix, and whether there was a prefix.
fn split_base(text: &str) -> (u32, &str, bool) {
    let bytes = text.as_bytes();
    // A prefix needs a digit after it; a lone zero is decimal.
    if bytes.len() >= 3 && bytes[0] == b'0' {
        match bytes[1] {
            b'x' | b'X' => return (16, &text[2..], true),
            b'o' | b'O' => return (8, &text[2..], true),
            b'b' | b'B' => return (2, &text[2..], true),
            _ => {}
        }
    }
    match bytes {
        [b'0', _, ..] => (8, &text[1..], true),
        _ => (10, text, false),
    }
}

/// The digits alone, if every underscore stands between two digits (or a prefix and a digit).
fn without_underscores(digits: &str, prefixed: bool) -> Option<String> {
    let mut plain = String::with_capacity(digits.len());
    let mut after_digit = prefixed;
    for character in digits.chars() {
        if character == '_' {
            if !after_digit {
                return None;
            }
            after_digit = false;
        } else {
            plain.push(character);
            after_digit = true;
        }
    }
    // False if the text ends with an underscore, or is empty without a prefix.
    after_digit.then_some(plain)
}

/// A log verbosity level: a number without sign, prefix or underscore, that fits into 31 bits.
pub(super) fn parse_level(text: &str) -> Result<u32, String> {
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(level) if digits_only && level <= i32::MAX.unsigned_abs() => Ok(level),
        _ => Err(format!("expected a whole number from 0 to {}", i32::MAX)),
    }
}

/// The first CSV record of a text. A field in double quotes may hold commas, line ends and doubled
/// quotes; a quote anywhere else is an error. The empty text has no fields.
pub(super) fn parse_record(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = text.replace("\r\n", "\n");
    // Go drops one carriage return at the very end, too.
    let text = text.strip_suffix('\r').unwrap_or(&text);
    let mut rest = text.trim_start_matches('\n');
    if rest.is_empty() {
        return Err("expected comma-separated words, not only line ends".to_owned());
    }
    let mut fields = Vec::new();
    loop {
        let (field, after, more) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => plain_field(rest)?,
        };
        fields.push(field);
        rest = after;
        if !more {
            return Ok(fields);
        }
    }
}

/// A field, the rest of the text, and whether another field follows.
type CsvField<'a> = (String, &'a str, bool);

fn plain_field(text: &str) -> Result<CsvField<'_>, String> {
    let line = text.split('\n').next().unwrap_or(text);
    let (field, after, more) = match line.split_once(',') {
        Some((field, _)) => (field, &text[field.len() + 1..], true),
        None => (line, "", false),
    };
    if field.contains('"') {
        return Err("expected double quotes only around a whole word".to_owned());
    }
    Ok((field.to_owned(), after, more))
}

fn quoted_field(text: &str) -> Result<CsvField<'_>, String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("expected a closing double quote".to_owned());
        };
        field.push_str(before);
        if let Some(after) = after.strip_prefix('"') {
            field.push('"');
            rest = after;
        } else if let Some(after) = after.strip_prefix(',') {
            return Ok((field, after, true));
        } else if after.is_empty() || after.starts_with('\n') {
            return Ok((field, "", false));
        } else {
            return Err("expected a comma after a closing double quote".to_owned());
        }
    }
}
