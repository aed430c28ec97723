//! The format of netlink messages: a header, a fixed part, and attributes that may be nested.
//!
//! Pure. Parsing checks every length; the kernel's messages are trusted no more than a file.

#[cfg(test)]
mod tests;

pub(crate) const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Clears the kernel's flags for nested attributes and for network byte order.
const KIND_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// A message from the kernel that does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a netlink message is cut short or has a wrong length")]
pub struct ParseError;

/// Writes one message.
#[derive(Debug, Clone)]
pub(crate) struct NetlinkWriter {
    bytes: Vec<u8>,
}

impl NetlinkWriter {
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.put(kind, value);
        self
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// nftables uses network byte order.
    pub(crate) fn network_number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// An attribute that contains what `inside` writes.
    pub(crate) fn nested(mut self, kind: u16, inside: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.put(kind | NESTED, &[]);
        let mut inner = inside(self);
        let length = u16::try_from(inner.bytes.len() - start).unwrap_or(u16::MAX);
        inner.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        inner
    }

    /// Fixed fields within an attribute, as the peer of a veth pair has them.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        self.pad();
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Asks the kernel for an acknowledgement.
    pub(crate) fn acknowledged(mut self) -> Self {
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | 4;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    /// The whole message with a sequence number.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        self.pad();
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One message as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetlinkMessage<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// The messages of one datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> Result<Vec<NetlinkMessage<'_>>, ParseError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0)?;
        let length = usize::try_from(length).map_err(|_| ParseError)?;
        if length < HEADER {
            return Err(ParseError);
        }
        let whole = bytes.get(..length).ok_or(ParseError)?;
        found.push(NetlinkMessage {
            kind: u16_at(whole, 4)?,
            sequence: u32_at(whole, 8)?,
            payload: &whole[HEADER..],
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

/// The attributes of a message's payload after its fixed part, or of an attribute.
pub(crate) fn attributes(mut bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, ParseError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16_at(bytes, 0)?);
        if length < ATTRIBUTE_HEADER {
            return Err(ParseError);
        }
        let whole = bytes.get(..length).ok_or(ParseError)?;
        found.push((u16_at(whole, 2)? & KIND_MASK, &whole[ATTRIBUTE_HEADER..]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, ParseError> {
    let part = bytes.get(at..at + 2).ok_or(ParseError)?;
    Ok(u16::from_ne_bytes(part.try_into().map_err(|_| ParseError)?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, ParseError> {
    let part = bytes.get(at..at + 4).ok_or(ParseError)?;
    Ok(u32::from_ne_bytes(part.try_into().map_err(|_| ParseError)?))
}

/// A string that ends with a zero byte or with its attribute.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
