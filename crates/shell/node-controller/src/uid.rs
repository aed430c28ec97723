//! An object's UID, in sixteen bytes if it has the usual form.
//!
//! Rule: the text round-trips exactly; a UID in another form is kept as text.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Uid {
    Usual([u8; 16]),
    Other(Box<str>),
}

const DASHES: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    pub(crate) fn new(text: &str) -> Self {
        Self::usual(text).map_or_else(|| Self::Other(text.into()), Self::Usual)
    }

    fn usual(text: &str) -> Option<[u8; 16]> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 || !DASHES.into_iter().all(|at| bytes.get(at) == Some(&b'-')) {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            // Upper-case letters would come back as lower-case.
            _ => None,
        };
        let mut result = [0; 16];
        let mut digits = bytes.iter().enumerate().filter(|(at, _)| !DASHES.contains(at));
        for slot in &mut result {
            let (_, high) = digits.next()?;
            let (_, low) = digits.next()?;
            *slot = digit(*high)? << 4 | digit(*low)?;
        }
        Some(result)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Self::Other(text) => return out.write_str(text),
            Self::Usual(bytes) => bytes,
        };
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let places = (0..text.len()).filter(|at| !DASHES.contains(at));
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        for (at, digit) in places.zip(digits) {
            text[at] = DIGITS[usize::from(digit)];
        }
        out.write_str(&String::from_utf8_lossy(&text))
    }
}

#[cfg(test)]
mod tests;
