//! SPDY/3.1 as Kubernetes uses it: streams with headers, data, FIN; no priorities, no pushes.
//!
//! Rule: headers are compressed with a state for each direction: the decoder keeps that of
//! received frames, the encoder that of sent ones; a connection has one of each. There is no flow
//! control: WINDOW_UPDATE is parsed and ignored, since Kubernetes' peers neither send window
//! updates nor wait for them.
//!
//! upstream: SPDY protocol draft 3.1; moby/spdystream

mod headers;
mod table;

pub use headers::Headers;
use headers::{Compressor, Decompressor};

#[cfg(test)]
mod tests;

const VERSION: u16 = 3;
const FRAME_HEADER_BYTES: usize = 8;
/// The format allows 24 bits of length; peers send far shorter frames.
const MAX_FRAME_BYTES: usize = 1 << 22;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;
const FLAG_FIN: u8 = 1;

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    #[error("a frame of SPDY version {0}; expected 3")]
    Version(u16),
    #[error("a frame of {0} bytes; at most {MAX_FRAME_BYTES}")]
    TooLarge(usize),
    #[error("a frame is too short for its type")]
    Short,
    #[error("headers cannot be decompressed")]
    Compression,
    #[error("headers have wrong lengths or are too large")]
    Headers,
}

/// One frame. `end` is the FIN flag: the sender closes its half of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpdyFrame {
    /// SYN_STREAM: the sender opens a stream.
    Open {
        stream: u32,
        headers: Headers,
        end: bool,
    },
    /// SYN_REPLY: the reply to `Open`.
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
        /// The last stream that the sender accepted.
        last: u32,
        status: u32,
    },
    MoreHeaders {
        stream: u32,
        headers: Headers,
        end: bool,
    },
    /// WINDOW_UPDATE.
    Window {
        stream: u32,
        more: u32,
    },
    /// SETTINGS, and types that Kubernetes does not use.
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

    /// The next frame; `None` until all of it has been received.
    pub fn next_frame(&mut self) -> Result<Option<SpdyFrame>, SpdyError> {
        let Some(header) = self.buffered.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let length =
            usize::from(header[5]) << 16 | usize::from(header[6]) << 8 | usize::from(header[7]);
        if length > MAX_FRAME_BYTES {
            return Err(SpdyError::TooLarge(length));
        }
        let header = *header;
        if self.buffered.len() < FRAME_HEADER_BYTES + length {
            return Ok(None);
        }
        let payload: Vec<u8> =
            self.buffered[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length].to_vec();
        self.buffered.drain(..FRAME_HEADER_BYTES + length);
        let end = header[4] & FLAG_FIN != 0;
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if first & 0x8000_0000 == 0 {
            return Ok(Some(SpdyFrame::Data { stream: first, bytes: payload, end }));
        }
        let version = u16::from_be_bytes([header[0] & 0x7f, header[1]]);
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        let kind = u16::from_be_bytes([header[2], header[3]]);
        self.decode_control(kind, end, &payload).map(Some)
    }

    fn decode_control(
        &mut self,
        kind: u16,
        end: bool,
        payload: &[u8],
    ) -> Result<SpdyFrame, SpdyError> {
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
            RST_STREAM => Ok(SpdyFrame::Reset { stream: stream()?, status: word(4)? }),
            PING => Ok(SpdyFrame::Ping { id: word(0)? }),
            GOAWAY => Ok(SpdyFrame::GoAway { last: stream()?, status: word(4)? }),
            WINDOW_UPDATE => {
                Ok(SpdyFrame::Window { stream: stream()?, more: word(4)? & 0x7fff_ffff })
            }
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
    /// Appends a frame. Data longer than the longest frame is split.
    pub fn write(&mut self, frame: &SpdyFrame, output: &mut Vec<u8>) -> Result<(), SpdyError> {
        match frame {
            SpdyFrame::Open { stream, headers, end } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend_from_slice(&[0; 6]);
                payload.extend(self.headers.write(headers)?);
                write_control(SYN_STREAM, *end, &payload, output);
            }
            SpdyFrame::Accept { stream, headers, end } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend(self.headers.write(headers)?);
                write_control(SYN_REPLY, *end, &payload, output);
            }
            SpdyFrame::MoreHeaders { stream, headers, end } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend(self.headers.write(headers)?);
                write_control(HEADERS, *end, &payload, output);
            }
            SpdyFrame::Data { stream, bytes, end } => write_data(*stream, bytes, *end, output),
            SpdyFrame::Reset { stream, status } => {
                write_control_words(RST_STREAM, [*stream, *status], output);
            }
            SpdyFrame::GoAway { last, status } => {
                write_control_words(GOAWAY, [*last, *status], output);
            }
            SpdyFrame::Window { stream, more } => {
                write_control_words(WINDOW_UPDATE, [*stream, *more], output);
            }
            SpdyFrame::Ping { id } => write_control(PING, false, &id.to_be_bytes(), output),
            SpdyFrame::Other { .. } => {}
        }
        Ok(())
    }
}

fn write_control_words(kind: u16, words: [u32; 2], output: &mut Vec<u8>) {
    let payload: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    write_control(kind, false, &payload, output);
}

fn write_control(kind: u16, end: bool, payload: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    output.extend_from_slice(&kind.to_be_bytes());
    write_flags_and_length(end, payload.len(), output);
    output.extend_from_slice(payload);
}

fn write_data(stream: u32, bytes: &[u8], end: bool, output: &mut Vec<u8>) {
    let mut parts = bytes.chunks(MAX_FRAME_BYTES).peekable();
    if parts.peek().is_none() {
        output.extend_from_slice(&stream.to_be_bytes());
        write_flags_and_length(end, 0, output);
    }
    while let Some(part) = parts.next() {
        output.extend_from_slice(&stream.to_be_bytes());
        write_flags_and_length(end && parts.peek().is_none(), part.len(), output);
        output.extend_from_slice(part);
    }
}

fn write_flags_and_length(end: bool, length: usize, output: &mut Vec<u8>) {
    // A frame's length is below 2^24, so the lower three bytes suffice.
    let size = u32::try_from(length).unwrap_or(0).to_be_bytes();
    output.push(if end { FLAG_FIN } else { 0 });
    output.extend_from_slice(&size[1..]);
}
