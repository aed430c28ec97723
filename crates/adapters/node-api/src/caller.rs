//! Who calls: a name and groups, from a client certificate's subject or the API server's word.
//!
//! Rule: only what a verified certificate or a review says. The reader of certificates here looks
//! at nothing but the subject, of a certificate that TLS has verified already; it is bounded by the
//! certificate's own length and refuses what it does not understand. upstream: apiserver
//! authentication/request/x509

use std::collections::BTreeMap;

/// Somebody who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

const ALL_AUTHENTICATED: &str = "system:authenticated";

impl Caller {
    /// Somebody who showed nothing.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// Whose certificate this is: its common name, in the groups of its organizations. None where
    /// it has no name.
    pub fn of_certificate(certificate: &[u8]) -> Option<Self> {
        let subject = subject(certificate)?;
        let values = |kind: &[u8]| {
            let same = subject.iter().filter(|(found, _)| *found == kind);
            same.map(|(_, text)| text.clone()).collect::<Vec<_>>()
        };
        let name = values(COMMON_NAME).pop().filter(|name| !name.is_empty())?;
        let mut groups = values(ORGANIZATION);
        groups.push(ALL_AUTHENTICATED.to_owned());
        Some(Self { name, groups, ..Self::default() })
    }
}

/// 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// The attributes of the subject, in their order.
fn subject(certificate: &[u8]) -> Option<Vec<(&[u8], String)>> {
    let mut outer = Reader(certificate);
    let mut whole = Reader(outer.take(SEQUENCE)?);
    let mut fields = Reader(whole.take(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.take(VERSION)?;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields.any()?;
    }
    let mut names = Reader(fields.take(SEQUENCE)?);
    let mut found = Vec::new();
    while !names.0.is_empty() {
        let mut set = Reader(names.take(SET)?);
        while !set.0.is_empty() {
            let mut pair = Reader(set.take(SEQUENCE)?);
            let kind = pair.take(OBJECT_IDENTIFIER)?;
            let (tag, value) = pair.any()?;
            found.push((kind, text(tag, value)?));
        }
    }
    Some(found)
}

/// The kinds of text that Go's reader takes for a name.
fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, PrintableString, IA5String, NumericString
        0x0c | 0x13 | 0x16 | 0x12 => String::from_utf8(value.to_vec()).ok(),
        // TeletexString, as Latin-1
        0x14 => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        // BMPString
        0x1e => {
            let pairs = value.chunks_exact(2);
            if !pairs.remainder().is_empty() {
                return None;
            }
            let units: Vec<u16> =
                pairs.map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// Reads DER, one element after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The content of the next element, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().and_then(|(found, content)| (found == tag).then_some(content))
    }

    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            // Up to three bytes of length: more than any certificate has.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let length = bytes.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests;
