//! Header blocks: names and values, compressed with a dictionary and a state per direction.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::SpdyError;
use super::table::DICTIONARY;

/// Limit of a block when decompressed, and of the memory that its headers take: a name is sent once
/// before all of its values, so a small block could take a lot of memory.
const MAX_BLOCK_BYTES: usize = 1 << 20;
/// Overhead of a header, besides its text.
const HEADER_COST: usize = 64;
const CHUNK_BYTES: usize = 16 * 1024;

/// Names in lower case; a name may have several values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
        )
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(super) struct Decompressor(Decompress);

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Decompressor")
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Decompressor {
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        let mut plain = Vec::new();
        let mut rest = block;
        loop {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let mut part = vec![0; CHUNK_BYTES];
            let outcome = self.0.decompress(rest, &mut part, FlushDecompress::Sync);
            let used = usize::try_from(self.0.total_in() - before_in).unwrap_or(0);
            let made = usize::try_from(self.0.total_out() - before_out).unwrap_or(0);
            rest = rest.get(used..).ok_or(SpdyError::Compression)?;
            plain.extend_from_slice(part.get(..made).ok_or(SpdyError::Compression)?);
            if plain.len() > MAX_BLOCK_BYTES {
                return Err(SpdyError::Headers);
            }
            match outcome {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(DICTIONARY).map_err(|_| SpdyError::Compression)?;
                }
                Err(_) => return Err(SpdyError::Compression),
                Ok(Status::StreamEnd) => return Err(SpdyError::Compression),
                Ok(_) if made < CHUNK_BYTES && rest.is_empty() => break,
                Ok(_) if used == 0 && made == 0 => return Err(SpdyError::Compression),
                Ok(_) => {}
            }
        }
        parse(&plain)
    }
}

fn parse(plain: &[u8]) -> Result<Headers, SpdyError> {
    let mut rest = plain;
    let mut headers = Vec::new();
    let mut taken = 0;
    let count = number(&mut rest)?;
    for _ in 0..count {
        let name = text(&mut rest)?;
        let values = text(&mut rest)?;
        // Several values of a name are joined by zero bytes.
        for value in values.split('\0') {
            taken += name.len() + value.len() + HEADER_COST;
            if taken > MAX_BLOCK_BYTES {
                return Err(SpdyError::Headers);
            }
            headers.push((name.to_lowercase(), value.to_owned()));
        }
    }
    if rest.is_empty() { Ok(Headers(headers)) } else { Err(SpdyError::Headers) }
}

fn number(rest: &mut &[u8]) -> Result<usize, SpdyError> {
    let (bytes, after) = rest.split_first_chunk::<4>().ok_or(SpdyError::Headers)?;
    *rest = after;
    usize::try_from(u32::from_be_bytes(*bytes)).map_err(|_| SpdyError::Headers)
}

fn text(rest: &mut &[u8]) -> Result<String, SpdyError> {
    let length = number(rest)?;
    if length > rest.len() {
        return Err(SpdyError::Headers);
    }
    let (bytes, after) = rest.split_at(length);
    *rest = after;
    String::from_utf8(bytes.to_vec()).map_err(|_| SpdyError::Headers)
}

pub(super) struct Compressor(Compress);

impl std::fmt::Debug for Compressor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Compressor")
    }
}

impl Default for Compressor {
    fn default() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        // A fresh state accepts the dictionary; an error would show when a block is written.
        let _ = compress.set_dictionary(DICTIONARY);
        Self(compress)
    }
}

impl Compressor {
    pub(super) fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, SpdyError> {
        let mut plain = Vec::new();
        let mut put = |bytes: &[u8]| {
            plain.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
            plain.extend_from_slice(bytes);
        };
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &headers.0 {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for name in &names {
            put(name.as_bytes());
            let values: Vec<&str> = headers
                .0
                .iter()
                .filter(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
                .collect();
            put(values.join("\0").as_bytes());
        }
        let mut block = u32::try_from(names.len()).unwrap_or(0).to_be_bytes().to_vec();
        block.extend(plain);
        self.compress(&block)
    }

    fn compress(&mut self, block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut output = Vec::new();
        let mut rest = block;
        loop {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let mut part = vec![0; CHUNK_BYTES];
            self.0
                .compress(rest, &mut part, FlushCompress::Sync)
                .map_err(|_| SpdyError::Compression)?;
            let used = usize::try_from(self.0.total_in() - before_in).unwrap_or(0);
            let made = usize::try_from(self.0.total_out() - before_out).unwrap_or(0);
            rest = rest.get(used..).ok_or(SpdyError::Compression)?;
            output.extend_from_slice(part.get(..made).ok_or(SpdyError::Compression)?);
            if rest.is_empty() && made < CHUNK_BYTES {
                return Ok(output);
            }
        }
    }
}
