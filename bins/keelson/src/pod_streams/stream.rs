//! A stream into a pod: at an address, or on a connection that is open already.
//!
//! Rule: SPDY/3.1 either way; users see no difference except in how it begins.

use anyhow::{Context as _, Result};
use ports::local_runtime::{LocalStream, StreamEndpoint};
use std::fmt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// Both directions of a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) enum PodStream {
    /// To be connected to, once.
    Address(LocalStream),
    Open(Box<dyn Duplex>),
}

impl PodStream {
    /// From a runtime in this process. Must be called inside a tokio runtime.
    pub(crate) fn of(offer: StreamEndpoint) -> Result<Self> {
        match offer {
            StreamEndpoint::Address(address) => Ok(Self::Address(address)),
            StreamEndpoint::Here(carry) => {
                let (near, far) =
                    std::os::unix::net::UnixStream::pair().context("a socket pair")?;
                near.set_nonblocking(true).context("a socket pair")?;
                let near = UnixStream::from_std(near).context("a socket pair")?;
                // Ends with this end of the pair.
                tokio::spawn(carry(far.into(), Vec::new()));
                Ok(Self::Open(Box::new(near)))
            }
        }
    }
}

impl fmt::Debug for PodStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => formatter.debug_tuple("Address").field(address).finish(),
            Self::Open(_) => formatter.write_str("Open"),
        }
    }
}

#[cfg(test)]
mod tests;
