//! Layers and archives as uncompressed bytes.
//!
//! The compression is detected from the first bytes, because media types are often wrong.
//! Concatenated gzip members and zstd frames (including skippable ones) are one stream. The output
//! size is not limited here: every reader wraps it in [`LimitedReader`].

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Detects it from the first six bytes (or fewer, in a shorter stream).
    fn of(start: &[u8]) -> Result<Self, &'static str> {
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Zstd),
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Self::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Err("bzip2"),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Err("xz"),
            _ => Ok(Self::None),
        }
    }
}

/// Decompresses a stream of any known compression.
pub struct LayerDecoder<R: Read>(DecoderKind<R>);

enum DecoderKind<R: Read> {
    Plain(io::Chain<io::Cursor<Vec<u8>>, R>),
    Gzip(Box<MultiGzDecoder<Buffered<R>>>),
    Zstd(Box<ZstdFrames<Buffered<R>>>),
}

type Buffered<R> = BufReader<io::Chain<io::Cursor<Vec<u8>>, R>>;

impl<R: Read> LayerDecoder<R> {
    /// `what` names the stream in errors.
    pub fn new(what: &str, mut from: R) -> Result<Self> {
        let mut start = Vec::new();
        from.by_ref()
            .take(6)
            .read_to_end(&mut start)
            .map_err(|error| Error::archive(what, error.to_string()))?;
        let compression = Compression::of(&start).map_err(|name| {
            Error::archive(what, format!("is compressed with {name}; expected gzip, zstd or none"))
        })?;
        let whole = io::Cursor::new(start).chain(from);
        let buffered = |whole| BufReader::with_capacity(64 << 10, whole);
        Ok(Self(match compression {
            Compression::None => DecoderKind::Plain(whole),
            Compression::Gzip => DecoderKind::Gzip(Box::new(MultiGzDecoder::new(buffered(whole)))),
            Compression::Zstd => DecoderKind::Zstd(Box::new(ZstdFrames::new(buffered(whole)))),
        }))
    }

    pub fn compression(&self) -> Compression {
        match self.0 {
            DecoderKind::Plain(_) => Compression::None,
            DecoderKind::Gzip(_) => Compression::Gzip,
            DecoderKind::Zstd(_) => Compression::Zstd,
        }
    }
}

impl<R: Read> Read for LayerDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            DecoderKind::Plain(reader) => reader.read(buffer),
            DecoderKind::Gzip(reader) => reader.read(buffer),
            DecoderKind::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// All frames of a zstd stream in sequence.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), within: false }
    }

    /// Advances to the next frame with content; `false` at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped =
                        io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn check_sum(&self) -> io::Result<()> {
        let announced = self.decoder.get_checksum_from_data();
        let found = self.decoder.get_calculated_checksum();
        match (announced, found) {
            (Some(announced), Some(found)) if announced != found => {
                Err(io::Error::other("a zstd frame has another checksum than it says"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.within {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.within = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.check_sum()?;
            self.within = false;
        }
    }
}

/// Fails when more than a number of bytes is read.
pub(crate) struct LimitedReader<R> {
    inner: R,
    left: u64,
    limit: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("more than {limit} bytes come out")]
pub(crate) struct LimitExceeded {
    limit: u64,
}

impl<R: Read> LimitedReader<R> {
    pub(crate) fn new(inner: R, limit: u64) -> Self {
        Self { inner, left: limit, limit }
    }
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One byte beyond the limit distinguishes the end from an excess.
        let room = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let end = buffer.len().min(room);
        let read = self.inner.read(&mut buffer[..end])?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(LimitExceeded { limit: self.limit })),
        }
        Ok(read)
    }
}

/// Converts a read error: an excess becomes a limit error, anything else a broken stream.
pub(crate) fn read_error(what: &str, error: &io::Error) -> Error {
    let exceeded = error.get_ref().and_then(|inner| inner.downcast_ref::<LimitExceeded>());
    match exceeded {
        Some(LimitExceeded { limit }) => Error::Limit {
            what: format!("{what}: bytes that come out"),
            found: limit + 1,
            limit: *limit,
        },
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::archive(what, "ends in the middle: it is truncated")
        }
        None => Error::archive(what, error.to_string()),
    }
}
