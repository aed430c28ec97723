//! D-Bus messages: encodes method calls, decodes the parts of replies and signals that are used.
//!
//! Rule: pure. Alignment and encoding are the D-Bus specification's. A message longer than
//! [`MAX_MESSAGE_BYTES`] is rejected before it is read.

#[cfg(test)]
mod tests;

/// Longer than any message that is sent or expected; the specification allows more.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The value of a unit's property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    Text(String),
    Bool(bool),
    Number(u64),
    Strings(Vec<String>),
    Uint32s(Vec<u32>),
    Bytes(Vec<u8>),
}

impl PropertyValue {
    fn signature(&self) -> &'static str {
        match self {
            Self::Text(_) => "s",
            Self::Bool(_) => "b",
            Self::Number(_) => "t",
            Self::Strings(_) => "as",
            Self::Uint32s(_) => "au",
            Self::Bytes(_) => "ay",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    MethodCall,
    Reply,
    MethodError,
    Signal,
}

impl MessageKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::MethodCall),
            2 => Some(Self::Reply),
            3 => Some(Self::MethodError),
            4 => Some(Self::Signal),
            _ => None,
        }
    }
}

/// A message, or its body, being encoded; alignment counts from its first byte.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct DbusWriter(pub(crate) Vec<u8>);

impl DbusWriter {
    pub(crate) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn word(&mut self, word: u32) {
        self.align(4);
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.align(8);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.word(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    pub(crate) fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    /// An array whose elements are aligned to `element`. Its length in bytes precedes it and does
    /// not include the padding before the first element.
    pub(crate) fn array(&mut self, element: usize, fill: impl FnOnce(&mut Self)) {
        self.word(0);
        let length_at = self.0.len() - 4;
        self.align(element);
        let start = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub(crate) fn variant(&mut self, value: &PropertyValue) {
        self.signature(value.signature());
        match value {
            PropertyValue::Text(text) => self.text(text),
            PropertyValue::Bool(flag) => self.word(u32::from(*flag)),
            PropertyValue::Number(number) => self.number(*number),
            PropertyValue::Strings(texts) => {
                self.array(4, |writer| texts.iter().for_each(|text| writer.text(text)));
            }
            PropertyValue::Uint32s(words) => {
                self.array(4, |writer| words.iter().for_each(|word| writer.word(*word)));
            }
            PropertyValue::Bytes(bytes) => {
                self.array(1, |writer| bytes.iter().for_each(|byte| writer.byte(*byte)));
            }
        }
    }

    /// Properties as `a(sv)`: an array of pairs of name and variant.
    pub(crate) fn properties(&mut self, properties: &[(&str, PropertyValue)]) {
        self.array(8, |writer| {
            for (name, value) in properties {
                writer.align(8);
                writer.text(name);
                writer.variant(value);
            }
        });
    }
}

/// Header field codes of the specification.
const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_ERROR_NAME: u8 = 4;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SIGNATURE: u8 = 8;

/// A method call, not yet encoded.
pub(crate) struct MethodCall<'a> {
    pub(crate) destination: Option<&'a str>,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) member: &'a str,
    pub(crate) signature: &'a str,
    pub(crate) body: DbusWriter,
}

impl MethodCall<'_> {
    pub(crate) fn bytes(&self, serial: u32) -> Vec<u8> {
        let mut writer = DbusWriter::default();
        // Little-endian, a method call, no flags, protocol version 1.
        for byte in [b'l', 1, 0, 1] {
            writer.byte(byte);
        }
        writer.word(u32::try_from(self.body.0.len()).unwrap_or(u32::MAX));
        writer.word(serial);
        writer.array(8, |writer| {
            write_field(writer, FIELD_PATH, "o", self.path);
            write_field(writer, FIELD_INTERFACE, "s", self.interface);
            write_field(writer, FIELD_MEMBER, "s", self.member);
            if let Some(destination) = self.destination {
                write_field(writer, FIELD_DESTINATION, "s", destination);
            }
            if !self.signature.is_empty() {
                writer.align(8);
                writer.byte(FIELD_SIGNATURE);
                writer.signature("g");
                writer.signature(self.signature);
            }
        });
        writer.align(8);
        writer.0.extend_from_slice(&self.body.0);
        writer.0
    }
}

fn write_field(writer: &mut DbusWriter, code: u8, signature: &str, text: &str) {
    writer.align(8);
    writer.byte(code);
    writer.signature(signature);
    writer.text(text);
}

/// A received message, as far as it is decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DbusMessage {
    pub(crate) kind: MessageKind,
    pub(crate) reply_to: Option<u32>,
    pub(crate) member: String,
    pub(crate) error_name: String,
    pub(crate) signature: String,
    big_endian: bool,
    body: Vec<u8>,
}

/// The fixed part of a header; it contains the lengths of the other parts.
pub(crate) const FIXED_HEADER_BYTES: usize = 16;

/// The length of the whole message in bytes.
pub(crate) fn whole_length(fixed_header: &[u8; FIXED_HEADER_BYTES]) -> Result<usize, &'static str> {
    let mut reader = DbusReader::new(fixed_header, is_big_endian(fixed_header[0])?);
    if fixed_header[3] != 1 {
        return Err("a protocol version other than 1");
    }
    reader.at = 4;
    let short = "a header that is too short";
    let body = reader.word().ok_or(short)? as usize;
    reader.at = 12;
    let fields = reader.word().ok_or(short)? as usize;
    let whole = (FIXED_HEADER_BYTES + fields).next_multiple_of(8).saturating_add(body);
    if body > MAX_MESSAGE_BYTES || fields > MAX_MESSAGE_BYTES || whole > MAX_MESSAGE_BYTES {
        return Err("a message that is too long");
    }
    Ok(whole)
}

fn is_big_endian(mark: u8) -> Result<bool, &'static str> {
    match mark {
        b'l' => Ok(false),
        b'B' => Ok(true),
        _ => Err("a byte order mark other than l or B"),
    }
}

impl DbusMessage {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let fixed_header: &[u8; FIXED_HEADER_BYTES] = bytes
            .get(..FIXED_HEADER_BYTES)
            .and_then(|head| head.try_into().ok())
            .ok_or("a message that is too short")?;
        if whole_length(fixed_header)? != bytes.len() {
            return Err("a message whose length differs from its header");
        }
        let big_endian = is_big_endian(fixed_header[0])?;
        let kind = MessageKind::from_byte(fixed_header[1]).ok_or("an unknown kind of message")?;
        let mut reader = DbusReader::new(bytes, big_endian);
        reader.at = 12;
        let short = "a truncated header field";
        let length = reader.word().ok_or(short)? as usize;
        let end = FIXED_HEADER_BYTES + length;
        let mut message = Self {
            kind,
            reply_to: None,
            member: String::new(),
            error_name: String::new(),
            signature: String::new(),
            big_endian,
            body: bytes.get(end.next_multiple_of(8)..).ok_or(short)?.to_vec(),
        };
        while reader.at < end {
            reader.align(8);
            let code = reader.byte().ok_or(short)?;
            let signature = reader.signature().ok_or(short)?;
            match signature.as_str() {
                "u" => {
                    let word = reader.word().ok_or(short)?;
                    if code == FIELD_REPLY_SERIAL {
                        message.reply_to = Some(word);
                    }
                }
                "g" => message.signature = reader.signature().ok_or(short)?,
                "s" | "o" => {
                    let text = reader.text().ok_or(short)?;
                    match code {
                        FIELD_MEMBER => message.member = text,
                        FIELD_ERROR_NAME => message.error_name = text,
                        _ => {}
                    }
                }
                _ => return Err("a header field of an unknown type"),
            }
        }
        Ok(message)
    }

    pub(crate) fn body(&self) -> DbusReader<'_> {
        DbusReader::new(&self.body, self.big_endian)
    }

    /// The first string of the body, if there is one.
    pub(crate) fn first_text(&self) -> Option<String> {
        matches!(self.signature.as_bytes().first(), Some(b's' | b'o'))
            .then(|| self.body().text())
            .flatten()
    }
}

/// Decodes values from a message; `None` if the bytes end too early.
#[derive(Debug)]
pub(crate) struct DbusReader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> DbusReader<'a> {
    fn new(bytes: &'a [u8], big_endian: bool) -> Self {
        Self { bytes, at: 0, big_endian }
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.align(4);
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let length = self.word()? as usize;
        let text = self.take(length)?;
        self.take(1)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        let text = self.take(length)?;
        self.take(1)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}
