//! The filter itself: bytes from a client in, bytes for the server out.
//!
//! Rule: as soon as one header block had to be rewritten, all later blocks of the connection are,
//! because the server no longer has the dynamic table that they refer to. Until then blocks pass
//! unchanged, so connections of well-behaved clients cost one decoding of each block and nothing
//! else. A connection that does not begin as HTTP/2 passes unfiltered. What a client can make this
//! buffer is bounded: one frame, one open header block (its bytes and its frames, so that empty
//! ones count too), and the output of one block. Other frames are passed on as they arrive and
//! never buffered; their number is the server's to limit.

use crate::hpack::{BlockError, Field, HpackDecoder, encode};

#[cfg(test)]
mod tests;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// The default limit of a server, which ours do not change.
const MAX_FRAME_BYTES: usize = 16_384;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// Four times what the server behind accepts, which answers a block that is somewhat too large and
/// closes a connection above that.
const MAX_BLOCK_BYTES: usize = 1 << 16;
/// A block of the largest size needs four; the server behind accepts five (RFC 9113, 10.5.1).
const MAX_CONTINUATIONS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("a header block of the client does not decode: {0}")]
    Block(String),
    #[error("a frame of the client breaks the order of header blocks")]
    Order,
    #[error("a header block of the client comes in more than {MAX_CONTINUATIONS} further frames")]
    Continuations,
}

impl From<BlockError> for FilterError {
    fn from(error: BlockError) -> Self {
        Self::Block(error.to_string())
    }
}

#[derive(Debug, Default)]
enum FilterStage {
    #[default]
    Preface,
    Frames,
    /// Inside a frame that is passed on: so many bytes are left.
    PassingFrame(usize),
    /// Not HTTP/2, or nothing that this filter understands.
    NotHttp2,
}

/// The direction from client to server of one connection.
#[derive(Debug, Default)]
pub struct AuthorityFilter {
    stage: FilterStage,
    /// The beginning of something that is incomplete.
    buffered: Vec<u8>,
    decoder: HpackDecoder,
    /// A header block whose last part has not arrived.
    open: Option<PartialHeaderBlock>,
    rewriting: bool,
}

#[derive(Debug)]
struct PartialHeaderBlock {
    stream: [u8; 4],
    flags: u8,
    priority: Option<[u8; 5]>,
    block: Vec<u8>,
    /// The frames as they arrived.
    frames: Vec<u8>,
    continuations: usize,
}

struct Http2Frame<'a> {
    kind: u8,
    flags: u8,
    stream: [u8; 4],
    payload: &'a [u8],
    whole: &'a [u8],
}

impl AuthorityFilter {
    /// Consumes bytes that a client sent, appends the bytes for the server, and returns how many it
    /// consumed. It stops after a header block, since a rewritten one may be far larger than it
    /// was.
    pub fn push(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<usize, FilterError> {
        let mut rest = input;
        let all = |rest: &[u8]| Ok(input.len() - rest.len());
        loop {
            match self.stage {
                FilterStage::NotHttp2 => {
                    output.append(&mut self.buffered);
                    output.extend_from_slice(rest);
                    return all(&[]);
                }
                FilterStage::PassingFrame(left) => {
                    let now = left.min(rest.len());
                    output.extend_from_slice(&rest[..now]);
                    rest = &rest[now..];
                    if now < left {
                        self.stage = FilterStage::PassingFrame(left - now);
                        return all(rest);
                    }
                    self.stage = FilterStage::Frames;
                }
                FilterStage::Preface => {
                    if !self.fill(PREFACE.len(), &mut rest) {
                        // Another protocol shows early: do not withhold it from the server.
                        if !PREFACE.starts_with(&self.buffered) {
                            self.stage = FilterStage::NotHttp2;
                            continue;
                        }
                        return all(rest);
                    }
                    self.stage = if self.buffered == PREFACE {
                        FilterStage::Frames
                    } else {
                        FilterStage::NotHttp2
                    };
                    output.append(&mut self.buffered);
                }
                FilterStage::Frames => {
                    let before = output.len();
                    if !self.frame(&mut rest, output)? || output.len() > before + FRAME_HEADER {
                        return all(rest);
                    }
                }
            }
        }
    }

    /// Fills `buffered` up to `size`; `false` if the input ended before.
    fn fill(&mut self, size: usize, rest: &mut &[u8]) -> bool {
        let wanted = size.saturating_sub(self.buffered.len()).min(rest.len());
        self.buffered.extend_from_slice(&rest[..wanted]);
        *rest = &rest[wanted..];
        self.buffered.len() >= size
    }

    /// One frame; `false` if it is incomplete.
    fn frame(&mut self, rest: &mut &[u8], output: &mut Vec<u8>) -> Result<bool, FilterError> {
        if !self.fill(FRAME_HEADER, rest) {
            return Ok(false);
        }
        let size = usize::from(self.buffered[0]) << 16
            | usize::from(self.buffered[1]) << 8
            | usize::from(self.buffered[2]);
        let kind = self.buffered[3];
        // A frame that is too large is the server's to reject, and not buffered here.
        if (kind != HEADERS && kind != CONTINUATION) || size > MAX_FRAME_BYTES {
            if self.open.is_some() {
                return Err(FilterError::Order);
            }
            output.append(&mut self.buffered);
            self.stage = FilterStage::PassingFrame(size);
            return Ok(true);
        }
        if !self.fill(FRAME_HEADER + size, rest) {
            return Ok(false);
        }
        let whole = std::mem::take(&mut self.buffered);
        let frame = Http2Frame {
            kind,
            flags: whole[4],
            stream: [whole[5], whole[6], whole[7], whole[8]],
            payload: &whole[FRAME_HEADER..],
            whole: &whole,
        };
        self.header_frame(&frame, output)?;
        Ok(true)
    }

    fn header_frame(
        &mut self,
        frame: &Http2Frame<'_>,
        output: &mut Vec<u8>,
    ) -> Result<(), FilterError> {
        let mut open = match (self.open.take(), frame.kind) {
            (None, HEADERS) => begin_header_block(frame)?,
            (Some(mut open), CONTINUATION) if open.stream == frame.stream => {
                open.continuations += 1;
                if open.continuations > MAX_CONTINUATIONS {
                    return Err(FilterError::Continuations);
                }
                open.block.extend_from_slice(frame.payload);
                open.frames.extend_from_slice(frame.whole);
                open
            }
            _ => return Err(FilterError::Order),
        };
        if open.block.len() > MAX_BLOCK_BYTES {
            return Err(BlockError::TooLarge.into());
        }
        if frame.flags & END_HEADERS == 0 {
            self.open = Some(open);
            return Ok(());
        }
        let mut fields = self.decoder.decode(&open.block)?;
        self.rewriting |= replace_invalid_authorities(&mut fields);
        if self.rewriting {
            write(&open, &encode(&fields), output);
        } else {
            output.append(&mut open.frames);
        }
        Ok(())
    }
}

fn begin_header_block(frame: &Http2Frame<'_>) -> Result<PartialHeaderBlock, FilterError> {
    let mut payload = frame.payload;
    if frame.flags & PADDED != 0 {
        let (padding, rest) = payload.split_first().ok_or(FilterError::Order)?;
        let end = rest.len().checked_sub(usize::from(*padding)).ok_or(FilterError::Order)?;
        payload = &rest[..end];
    }
    let mut priority = None;
    if frame.flags & PRIORITY != 0 {
        let (first, rest) = payload.split_first_chunk::<5>().ok_or(FilterError::Order)?;
        priority = Some(*first);
        payload = rest;
    }
    Ok(PartialHeaderBlock {
        stream: frame.stream,
        flags: frame.flags,
        priority,
        block: payload.to_vec(),
        frames: frame.whole.to_vec(),
        continuations: 0,
    })
}

/// Replaces an authority that is no host. `true` if something was changed.
fn replace_invalid_authorities(fields: &mut [Field]) -> bool {
    let mut changed = false;
    for (name, value) in fields {
        if (name == b":authority" || name == b"host") && !is_host(value) {
            *value = b"localhost".to_vec();
            changed = true;
        }
    }
    changed
}

/// Stricter than the standard: the server certainly accepts what passes.
fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value.iter().rposition(|byte| *byte == b':') {
        Some(at) if !value.ends_with(b"]") => (&value[..at], Some(&value[at + 1..])),
        _ => (value, None),
    };
    let huffman_symbol =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let in_brackets = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':');
    let host = match host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")) {
        Some(address) => !address.is_empty() && address.iter().all(in_brackets),
        None => !host.is_empty() && host.iter().all(huffman_symbol),
    };
    let port = port.is_none_or(|port| {
        !port.is_empty() && port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
    });
    host && port
}

fn write(open: &PartialHeaderBlock, block: &[u8], output: &mut Vec<u8>) {
    let mut first = open.priority.map_or_else(Vec::new, |priority| priority.to_vec());
    let room = MAX_FRAME_BYTES - first.len();
    let (head, mut rest) = block.split_at(block.len().min(room));
    first.extend_from_slice(head);
    let end = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    let flags = open.flags & !(PADDED | END_HEADERS) | end(rest);
    write_frame(HEADERS, flags, open.stream, &first, output);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.len().min(MAX_FRAME_BYTES));
        rest = after;
        write_frame(CONTINUATION, end(rest), open.stream, part, output);
    }
}

fn write_frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8], output: &mut Vec<u8>) {
    // Never above the largest frame, so three bytes suffice.
    let size = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    output.extend_from_slice(&size[1..]);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream);
    output.extend_from_slice(payload);
}
