//! Splits a byte stream into watch events: lines of JSON, or length-prefixed frames of protobuf.
//!
//! Rule: at most one event and one chunk are held, and an event has a size limit; beyond it the
//! stream is unusable. Empty events are skipped. Knows neither JSON nor protobuf.

use bytes::{Buf as _, Bytes, BytesMut};

/// Size of a frame's length prefix, big-endian.
const LENGTH: usize = 4;

/// The part of a stream that is not a whole event yet.
#[derive(Debug)]
pub(crate) struct EventSplitter {
    partial: BytesMut,
    chunk: Bytes,
    limit: usize,
    /// Frames, not lines.
    length_prefixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLong;

impl EventSplitter {
    pub(crate) fn new(limit: usize) -> Self {
        Self { partial: BytesMut::new(), chunk: Bytes::new(), limit, length_prefixed: false }
    }

    pub(crate) fn length_prefixed(limit: usize) -> Self {
        Self { length_prefixed: true, ..Self::new(limit) }
    }

    /// Adds a chunk. Must be called only when `next` has returned everything in the previous one.
    pub(crate) fn add(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            let mut joined = BytesMut::from(self.chunk.as_ref());
            joined.extend_from_slice(&chunk);
            self.chunk = joined.freeze();
        }
    }

    /// The next whole event, without its line end or length prefix.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, EventTooLong> {
        if self.length_prefixed { self.next_frame() } else { self.next_line() }
    }

    fn next_frame(&mut self) -> Result<Option<Bytes>, EventTooLong> {
        loop {
            self.fill(LENGTH);
            let Some(length) = self.partial.first_chunk::<LENGTH>() else { return Ok(None) };
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > self.limit {
                return Err(EventTooLong);
            }
            // Most frames lie in one chunk and are sliced out of it without a copy.
            if self.partial.len() == LENGTH && self.chunk.len() >= length {
                self.partial.clear();
                let frame = self.chunk.split_to(length);
                if !frame.is_empty() {
                    return Ok(Some(frame));
                }
                continue;
            }
            self.fill(LENGTH + length);
            if self.partial.len() < LENGTH + length {
                return Ok(None);
            }
            return Ok(Some(std::mem::take(&mut self.partial).freeze().split_off(LENGTH)));
        }
    }

    /// Moves bytes from the chunk until `wanted` are there, or the chunk is used up.
    fn fill(&mut self, wanted: usize) {
        let missing = wanted.saturating_sub(self.partial.len()).min(self.chunk.len());
        if missing > 0 {
            let part = self.chunk.split_to(missing);
            self.partial.extend_from_slice(&part);
        }
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, EventTooLong> {
        loop {
            let Some(end) = self.chunk.iter().position(|byte| *byte == b'\n') else {
                if self.partial.len() + self.chunk.len() > self.limit {
                    return Err(EventTooLong);
                }
                self.partial.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return Ok(None);
            };
            if self.partial.len() + end > self.limit {
                return Err(EventTooLong);
            }
            let rest = self.chunk.split_to(end);
            self.chunk.advance(1);
            let line = if self.partial.is_empty() {
                rest
            } else {
                self.partial.extend_from_slice(&rest);
                std::mem::take(&mut self.partial).freeze()
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests;
