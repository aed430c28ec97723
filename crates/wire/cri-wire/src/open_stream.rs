//! Exec, attach and port-forward between a client and a runtime of one process.
//!
//! Rule: the calls stay CRI's. A client that accepts a stream without an address puts
//! [`TakesOpenStream`] among the request's extensions; a runtime that supports it puts an
//! [`OpenStream`] among the response's extensions and leaves the address empty. Extensions never
//! cross a socket: there both sides see an ordinary request and response.
//!
//! What goes over the connection is SPDY/3.1, as after the upgrade at an address: remote commands
//! speak `v4.channel.k8s.io`, port-forward `portforward.k8s.io`.

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// In a request's extensions: no address is needed.
#[derive(Debug, Clone, Copy)]
pub struct TakesOpenStream;

/// Serves a stream on a connection (a unix stream socket), of which these bytes were read already.
/// Dropping the future ends the stream.
pub type CarryStream =
    Box<dyn FnOnce(OwnedFd, Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// In a response's extensions: a stream that waits for its connection. Clones share it.
#[derive(Clone)]
pub struct OpenStream(Arc<Mutex<Option<CarryStream>>>);

impl OpenStream {
    pub fn new(carry: CarryStream) -> Self {
        Self(Arc::new(Mutex::new(Some(carry))))
    }

    /// `Some` once only.
    pub fn take(&self) -> Option<CarryStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for OpenStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OpenStream")
    }
}
