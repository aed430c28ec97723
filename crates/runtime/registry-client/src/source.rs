//! A registry as the image store's source: content by digest, read where blocking is allowed.
//!
//! Rule: an interrupted body is resumed where it ended, with a few retries and growing back-off;
//! the retries start over after sufficient progress. A registry that delivers a byte at a time, in
//! many responses or in one slow one, fails. Content from a wrong offset is skipped or refused,
//! never used. The store verifies the whole.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use image_store::{ContentSource, Descriptor};
use tokio::runtime::Handle;

use crate::client::{RegistryClient, Resolved};
use crate::connection::{HttpResponse, IDLE_TIMEOUT};
use crate::error::Error;

const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// Minimum progress to reset the retries, and per body timeout.
const MIN_PROGRESS: u64 = 64 << 10;

/// Content of one resolved image. For threads that may block, inside a tokio runtime.
#[derive(Debug)]
pub struct RegistrySource {
    client: RegistryClient,
    resolved: Resolved,
    handle: Handle,
}

impl RegistrySource {
    pub fn new(client: RegistryClient, resolved: Resolved, handle: Handle) -> Self {
        Self { client, resolved, handle }
    }
}

impl ContentSource for RegistrySource {
    fn fetch(
        &self,
        descriptor: &Descriptor,
        offset: u64,
    ) -> image_store::Result<Box<dyn Read + '_>> {
        if descriptor.digest == self.resolved.descriptor.digest {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let rest = self.resolved.document.get(start..).unwrap_or_default();
            return Ok(Box::new(rest));
        }
        let mut reader = BlobReader {
            source: self,
            descriptor: descriptor.clone(),
            answer: None,
            part: Bytes::new(),
            offset,
            skip: 0,
            tries: 0,
            counted: offset,
            rate: TransferRate::default(),
        };
        // Not found and denied are reported at once.
        reader.connect().map_err(|error| image_store::Error::Source {
            digest: descriptor.digest,
            reason: error.to_string(),
        })?;
        Ok(Box::new(reader))
    }
}

struct BlobReader<'a> {
    source: &'a RegistrySource,
    descriptor: Descriptor,
    answer: Option<HttpResponse>,
    part: Bytes,
    /// How much of the blob was returned so far.
    offset: u64,
    /// Bytes to drop: a registry without range support starts at the beginning.
    skip: u64,
    /// Retries since the last sufficient progress.
    tries: usize,
    /// The offset of the last sufficient progress.
    counted: u64,
    rate: TransferRate,
}

/// Speed of a response, by the time spent waiting for it.
#[derive(Debug, Default)]
struct TransferRate {
    waited: Duration,
    bytes: u64,
}

impl TransferRate {
    /// Counts bytes received after a wait; false when the response has become too slow.
    fn is_fast_enough(&mut self, waited: Duration, bytes: usize) -> bool {
        self.waited += waited;
        self.bytes += bytes as u64;
        if self.waited < IDLE_TIMEOUT {
            return true;
        }
        std::mem::take(self).bytes >= MIN_PROGRESS
    }
}

impl BlobReader<'_> {
    fn connect(&mut self) -> Result<(), Error> {
        loop {
            let opening = self.source.client.open(
                &self.source.resolved.endpoint,
                &self.descriptor,
                self.offset,
            );
            match self.source.handle.block_on(opening) {
                Ok(answer) => {
                    self.skip = self.bytes_to_skip(&answer)?;
                    self.answer = Some(answer);
                    self.rate = TransferRate::default();
                    return Ok(());
                }
                Err(error) if error.is_transient() => self.pause(&error)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// How many bytes to skip: a response starts where it says, or at the beginning.
    fn bytes_to_skip(&self, answer: &HttpResponse) -> Result<u64, Error> {
        if answer.status != 206 {
            return Ok(self.offset);
        }
        let range = answer.header("content-range");
        let Some(range) = range else { return Ok(0) };
        range_start(&range).and_then(|start| self.offset.checked_sub(start)).ok_or_else(|| {
            Error::Answer {
                what: format!("content {}", self.descriptor.digest),
                reason: format!("it begins at {range:?}; {} was asked for", self.offset),
            }
        })
    }

    /// Waits before a retry, or returns the error when none is left.
    fn pause(&mut self, error: &Error) -> Result<(), Error> {
        let Some(pause) = RETRY_PAUSES.get(self.tries) else { return Err(error.clone()) };
        self.tries += 1;
        tracing::debug!(digest = %self.descriptor.digest, %error, "trying again");
        std::thread::sleep(*pause);
        Ok(())
    }

    fn next_part(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let Some(answer) = &mut self.answer else {
                self.connect().map_err(io::Error::other)?;
                continue;
            };
            let requested_at = Instant::now();
            match self.source.handle.block_on(answer.next()) {
                Ok(Some(part)) if self.rate.is_fast_enough(requested_at.elapsed(), part.len()) => {
                    return Ok(Some(part));
                }
                Ok(Some(_)) => self.retry("less than 64 KiB came in a minute")?,
                Ok(None) if self.offset >= self.descriptor.size => return Ok(None),
                // It ended early: a retry may get the rest.
                Ok(None) => self.retry("the answer ended early")?,
                Err(reason) => self.retry(&reason)?,
            }
        }
    }

    fn retry(&mut self, reason: &str) -> io::Result<()> {
        self.answer = None;
        let what = format!("content {}", self.descriptor.digest);
        let error = Error::Connection { what, reason: reason.to_owned() };
        self.pause(&error).map_err(io::Error::other)
    }
}

/// `bytes 100-199/200` begins at 100.
fn range_start(range: &str) -> Option<u64> {
    range.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            let Some(mut part) = self.next_part()? else { return Ok(0) };
            let dropped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(part.len());
            self.skip -= dropped as u64;
            part.advance(dropped);
            self.part = part;
        }
        let now = self.part.len().min(buffer.len());
        self.part.copy_to_slice(&mut buffer[..now]);
        self.offset += now as u64;
        // Skipped bytes are not progress.
        if self.offset - self.counted >= MIN_PROGRESS {
            self.counted = self.offset;
            self.tries = 0;
        }
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_below_the_minimum_rate_is_detected() {
        let second = Duration::from_secs(1);
        let mut slow = TransferRate::default();
        let stopped_at = (0..600).position(|_| !slow.is_fast_enough(second, 1));
        assert_eq!(stopped_at, Some(59), "after a minute");
        let mut steady = TransferRate::default();
        let piece = usize::try_from(MIN_PROGRESS).unwrap();
        assert!((0..600).all(|_| steady.is_fast_enough(second, piece / 60 + 1)));
        // A fast start does not excuse a slow end.
        let mut stalling = TransferRate::default();
        assert!(stalling.is_fast_enough(second, 1 << 30));
        assert!((0..200).any(|_| !stalling.is_fast_enough(second, 1)));
    }
}
