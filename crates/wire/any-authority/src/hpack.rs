//! Header compression of HTTP/2 (RFC 7541), as far as a filter needs it.
//!
//! Decoding is complete, with the dynamic table that the client fills; encoding uses neither table
//! nor Huffman codes, so that it has no state that could differ from the server's. Input is
//! untrusted: every length is checked, and a block's decoded size has a limit.

mod huffman;
mod table;

use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// The default of a server, which ours do not change.
const TABLE_BYTES: usize = 4096;
/// Overhead of an entry, besides its name and value.
const ENTRY_BYTES: usize = 32;
/// Four times what the servers behind accept; a block of references could otherwise grow without
/// end.
const MAX_BLOCK_BYTES: usize = 1 << 16;

pub(crate) type Field = (Vec<u8>, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockError {
    #[error("it ends in the middle of a field")]
    Short,
    #[error("a number in it is too large")]
    Number,
    #[error("it refers to a field that no table has")]
    Reference,
    #[error("its letters are coded wrongly")]
    Huffman,
    #[error("it asks for a larger table than was offered")]
    TableSize,
    #[error("it and its fields exceed 64 KiB")]
    TooLarge,
}

/// The dynamic table, newest entry first.
#[derive(Debug)]
pub(crate) struct HpackDecoder {
    entries: VecDeque<Field>,
    bytes: usize,
    limit: usize,
}

impl Default for HpackDecoder {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, limit: TABLE_BYTES }
    }
}

impl HpackDecoder {
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Vec<Field>, BlockError> {
        let mut input = BlockReader(block);
        let mut fields = Vec::new();
        let mut total = 0;
        while let Some(first) = input.peek() {
            let field = if first & 0x80 != 0 {
                self.field_at(input.number(7)?)?
            } else if first & 0x40 != 0 {
                let field = self.literal(&mut input, 6)?;
                self.insert(field.clone());
                field
            } else if first & 0x20 != 0 {
                let limit = input.number(5)?;
                if limit > TABLE_BYTES {
                    return Err(BlockError::TableSize);
                }
                self.limit = limit;
                self.shrink_to(limit);
                continue;
            } else {
                self.literal(&mut input, 4)?
            };
            total += field.0.len() + field.1.len() + ENTRY_BYTES;
            if total > MAX_BLOCK_BYTES {
                return Err(BlockError::TooLarge);
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn literal(&self, input: &mut BlockReader<'_>, prefix: u8) -> Result<Field, BlockError> {
        let name = match input.number(prefix)? {
            0 => input.text()?,
            index => self.field_at(index)?.0,
        };
        Ok((name, input.text()?))
    }

    fn field_at(&self, index: usize) -> Result<Field, BlockError> {
        let at = index.checked_sub(1).ok_or(BlockError::Reference)?;
        if let Some((name, value)) = table::FIELDS.get(at) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.entries.get(at - table::FIELDS.len()).cloned().ok_or(BlockError::Reference)
    }

    fn insert(&mut self, field: Field) {
        let size = field.0.len() + field.1.len() + ENTRY_BYTES;
        // An entry larger than the table empties it, as the standard requires.
        self.shrink_to(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.bytes += size;
            self.entries.push_front(field);
        }
    }

    fn shrink_to(&mut self, limit: usize) {
        while self.bytes > limit
            && let Some((name, value)) = self.entries.pop_back()
        {
            self.bytes -= name.len() + value.len() + ENTRY_BYTES;
        }
    }
}

struct BlockReader<'a>(&'a [u8]);

impl BlockReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn take(&mut self) -> Result<u8, BlockError> {
        let (first, rest) = self.0.split_first().ok_or(BlockError::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    /// An integer whose first bits share a byte with other flags.
    fn number(&mut self, prefix: u8) -> Result<usize, BlockError> {
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(self.take()?) & mask;
        if value < mask {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.take()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BlockError::Number)
    }

    fn text(&mut self) -> Result<Vec<u8>, BlockError> {
        let coded = self.peek().ok_or(BlockError::Short)? & 0x80 != 0;
        let length = self.number(7)?;
        if length > self.0.len() {
            return Err(BlockError::Short);
        }
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        if coded { huffman::decode(bytes).ok_or(BlockError::Huffman) } else { Ok(bytes.to_vec()) }
    }
}

/// Writes fields as literals without indexing.
pub(crate) fn encode(fields: &[Field]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            write_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

fn write_length(block: &mut Vec<u8>, length: usize) {
    let byte = |value: usize| u8::try_from(value & 0xff).unwrap_or(0);
    if length < 127 {
        block.push(byte(length));
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(byte(rest % 128) | 0x80);
        rest /= 128;
    }
    block.push(byte(rest));
}
