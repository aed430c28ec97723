//! SPDY/3.1 as Kubernetes uses it: streams with headers, data, FIN; no priorities, no pushes.
//!
//! Rule: the decoder keeps the compression state of one direction, the encoder of the other; a
//! connection has one of each. Flow control is parsed and ignored: the peers of Kubernetes neither
//! send window updates nor wait for them.
//!
//! upstream: SPDY protocol draft 3.1; moby/spdystream

mod headers;
mod table;

pub use headers::Headers;
use headers::{Compressor, Decompressor};

#[cfg(test)]
mod tests;

const VERSION: u16 = 3;
const HEADER: usize = 8;
/// A frame's length has 24 bits; peers send far less.
const MAX_FRAME_BYTES: usize = 1 << 22;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RESET: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW: u16 = 9;
const FIN: u8 = 1;

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    #[error("a frame of SPDY version {0}; expected 3")]
    Version(u16),
    #[error("a frame of {0} bytes; at most {MAX_FRAME_BYTES}")]
    TooLarge(usize),
    #[error("a frame is shorter than its kind")]
    Short,
    #[error("headers do not decompress")]
    Compression,
    #[error("headers have wrong lengths or are too large")]
    Headers,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpdyFrame {
    /// A peer opens a stream.
    Open {
        stream: u32,
        headers: Headers,
        end: bool,
    },
    /// The reply to `Open`.
    Accept {
        stream: u32,
        headers: Headers,
        end: bool,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
        end: bool,
    },
    Reset {
        stream: u32,
        status: u32,
    },
    Ping {
        id: u32,
    },
    GoAway {
        last: u32,
        status: u32,
    },
    MoreHeaders {
        stream: u32,
        headers: Headers,
        end: bool,
    },
    Window {
        stream: u32,
        more: u32,
    },
    /// Settings, and unused kinds.
    Other {
        kind: u16,
    },
}

/// Decodes bytes to frames.
#[derive(Debug, Default)]
pub struct SpdyDecoder {
    buffered: Vec<u8>,
    headers: Decompressor,
}

impl SpdyDecoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffered.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Result<Option<SpdyFrame>, SpdyError> {
        let Some(header) = self.buffered.first_chunk::<HEADER>() else { return Ok(None) };
        let length =
            usize::from(header[5]) << 16 | usize::from(header[6]) << 8 | usize::from(header[7]);
        if length > MAX_FRAME_BYTES {
            return Err(SpdyError::TooLarge(length));
        }
        let header = *header;
        if self.buffered.len() < HEADER + length {
            return Ok(None);
        }
        let payload: Vec<u8> = self.buffered[HEADER..HEADER + length].to_vec();
        self.buffered.drain(..HEADER + length);
        let end = header[4] & FIN != 0;
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if first & 0x8000_0000 == 0 {
            return Ok(Some(SpdyFrame::Data { stream: first, bytes: payload, end }));
        }
        let version = u16::from_be_bytes([header[0] & 0x7f, header[1]]);
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        let kind = u16::from_be_bytes([header[2], header[3]]);
        self.control(kind, end, &payload).map(Some)
    }

    fn control(&mut self, kind: u16, end: bool, payload: &[u8]) -> Result<SpdyFrame, SpdyError> {
        let word = |at: usize| {
            let bytes = payload.get(at..at + 4).ok_or(SpdyError::Short)?;
            let bytes: [u8; 4] = bytes.try_into().map_err(|_| SpdyError::Short)?;
            Ok(u32::from_be_bytes(bytes))
        };
        let stream = || word(0).map(|word| word & 0x7fff_ffff);
        let rest = |at: usize| payload.get(at..).ok_or(SpdyError::Short);
        match kind {
            SYN_STREAM => {
                let headers = self.headers.read(rest(10)?)?;
                Ok(SpdyFrame::Open { stream: stream()?, headers, end })
            }
            SYN_REPLY => {
                let headers = self.headers.read(rest(4)?)?;
                Ok(SpdyFrame::Accept { stream: stream()?, headers, end })
            }
            HEADERS => {
                let headers = self.headers.read(rest(4)?)?;
                Ok(SpdyFrame::MoreHeaders { stream: stream()?, headers, end })
            }
            RESET => Ok(SpdyFrame::Reset { stream: stream()?, status: word(4)? }),
            PING => Ok(SpdyFrame::Ping { id: word(0)? }),
            GO_AWAY => Ok(SpdyFrame::GoAway { last: stream()?, status: word(4)? }),
            WINDOW => Ok(SpdyFrame::Window { stream: stream()?, more: word(4)? & 0x7fff_ffff }),
            SETTINGS => Ok(SpdyFrame::Other { kind }),
            other => Ok(SpdyFrame::Other { kind: other }),
        }
    }
}

/// Encodes frames to bytes.
#[derive(Debug, Default)]
pub struct SpdyEncoder {
    headers: Compressor,
}

impl SpdyEncoder {
    /// Appends a frame. Data that exceeds a frame is split.
    pub fn write(&mut self, frame: &SpdyFrame, output: &mut Vec<u8>) -> Result<(), SpdyError> {
        match frame {
            SpdyFrame::Open { stream, headers, end } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend_from_slice(&[0; 6]);
                payload.extend(self.headers.write(headers)?);
                control(SYN_STREAM, *end, &payload, output);
            }
            SpdyFrame::Accept { stream, headers, end } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend(self.headers.write(headers)?);
                control(SYN_REPLY, *end, &payload, output);
            }
            SpdyFrame::MoreHeaders { stream, headers, end } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend(self.headers.write(headers)?);
                control(HEADERS, *end, &payload, output);
            }
            SpdyFrame::Data { stream, bytes, end } => data(*stream, bytes, *end, output),
            SpdyFrame::Reset { stream, status } => {
                control_with_words(RESET, [*stream, *status], output);
            }
            SpdyFrame::GoAway { last, status } => {
                control_with_words(GO_AWAY, [*last, *status], output);
            }
            SpdyFrame::Window { stream, more } => {
                control_with_words(WINDOW, [*stream, *more], output);
            }
            SpdyFrame::Ping { id } => control(PING, false, &id.to_be_bytes(), output),
            SpdyFrame::Other { .. } => {}
        }
        Ok(())
    }
}

fn control_with_words(kind: u16, control_with_words: [u32; 2], output: &mut Vec<u8>) {
    let payload: Vec<u8> = control_with_words.iter().flat_map(|word| word.to_be_bytes()).collect();
    control(kind, false, &payload, output);
}

fn control(kind: u16, end: bool, payload: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    output.extend_from_slice(&kind.to_be_bytes());
    length(end, payload.len(), output);
    output.extend_from_slice(payload);
}

fn data(stream: u32, bytes: &[u8], end: bool, output: &mut Vec<u8>) {
    let mut parts = bytes.chunks(MAX_FRAME_BYTES).peekable();
    if parts.peek().is_none() {
        output.extend_from_slice(&stream.to_be_bytes());
        length(end, 0, output);
    }
    while let Some(part) = parts.next() {
        output.extend_from_slice(&stream.to_be_bytes());
        length(end && parts.peek().is_none(), part.len(), output);
        output.extend_from_slice(part);
    }
}

fn length(end: bool, length: usize, output: &mut Vec<u8>) {
    // Never above the largest frame, so three bytes suffice.
    let size = u32::try_from(length).unwrap_or(0).to_be_bytes();
    output.push(if end { FIN } else { 0 });
    output.extend_from_slice(&size[1..]);
}
