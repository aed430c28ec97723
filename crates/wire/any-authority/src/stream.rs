//! A stream whose reading side passes through the filter.
//!
//! Rule: reads give filtered bytes in order; writes go through untouched. Reads are cancel-safe,
//! since filtered bytes that are not read yet are kept here. Nothing more is filtered before they
//! have been read, and large buffers are not kept.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::filter::AuthorityFilter;

const READ_BYTES: usize = 16 * 1024;

/// A server's end of a connection, with the client's authorities corrected.
#[derive(Debug)]
pub struct AuthorityFilterStream<Stream> {
    stream: Stream,
    filter: AuthorityFilter,
    /// Received and not filtered yet.
    received: Vec<u8>,
    filtered: Vec<u8>,
    delivered: usize,
}

impl<Stream> AuthorityFilterStream<Stream> {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            filter: AuthorityFilter::default(),
            received: Vec::new(),
            filtered: Vec::new(),
            delivered: 0,
        }
    }

    pub fn get_ref(&self) -> &Stream {
        &self.stream
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for AuthorityFilterStream<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let left = &this.filtered[this.delivered..];
            if !left.is_empty() {
                let now = left.len().min(buffer.remaining());
                buffer.put_slice(&left[..now]);
                this.delivered += now;
                return Poll::Ready(Ok(()));
            }
            this.filtered.clear();
            this.filtered.shrink_to(READ_BYTES);
            this.delivered = 0;
            if !this.received.is_empty() {
                let received = std::mem::take(&mut this.received);
                this.filter(&received)?;
                continue;
            }
            let mut space = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.filter(read.filled())?;
        }
    }
}

impl<Stream> AuthorityFilterStream<Stream> {
    /// Filters up to the next header block and keeps the rest.
    fn filter(&mut self, received: &[u8]) -> io::Result<()> {
        let taken = self
            .filter
            .push(received, &mut self.filtered)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.received = received.get(taken..).unwrap_or_default().to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests;

impl<Stream: AsyncWrite + Unpin> AsyncWrite for AuthorityFilterStream<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
