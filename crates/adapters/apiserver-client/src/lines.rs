//! Cuts a stream of bytes into lines, as watches send them.
//!
//! Rule: at most one line and one chunk are held, and a line has a longest length; beyond it the
//! stream is of no use any more. Empty lines are nothing. Knows no JSON.

use bytes::{Buf as _, Bytes, BytesMut};

/// The part of a stream that is not yet a line.
#[derive(Debug)]
pub(crate) struct Lines {
    begun: BytesMut,
    chunk: Bytes,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineTooLong;

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self { begun: BytesMut::new(), chunk: Bytes::new(), limit }
    }

    /// Adds what came. To be called only when there is no further line in what came before.
    pub(crate) fn add(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            let mut joined = BytesMut::from(self.chunk.as_ref());
            joined.extend_from_slice(&chunk);
            self.chunk = joined.freeze();
        }
    }

    /// The next whole line, without its end.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let Some(end) = self.chunk.iter().position(|byte| *byte == b'\n') else {
                if self.begun.len() + self.chunk.len() > self.limit {
                    return Err(LineTooLong);
                }
                self.begun.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return Ok(None);
            };
            if self.begun.len() + end > self.limit {
                return Err(LineTooLong);
            }
            let rest = self.chunk.split_to(end);
            self.chunk.advance(1);
            let line = if self.begun.is_empty() {
                rest
            } else {
                self.begun.extend_from_slice(&rest);
                std::mem::take(&mut self.begun).freeze()
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests;
