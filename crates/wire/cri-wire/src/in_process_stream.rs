//! Exec, attach and port-forward between a client and a runtime of one process.
//!
//! Rule: the calls stay CRI's. A client that accepts a stream without an address puts
//! [`AcceptsInProcessStream`] among the request's extensions; a runtime that supports it puts an
//! [`InProcessStream`] among the response's extensions and leaves the address empty. Extensions never
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
pub struct AcceptsInProcessStream;

/// Serves a stream on a connection (a unix stream socket), of which these bytes were read already.
/// Dropping the future ends the stream.
pub type ServeStream =
    Box<dyn FnOnce(OwnedFd, Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// In a response's extensions: a stream that waits for its connection. Clones share it.
#[derive(Clone)]
pub struct InProcessStream(Arc<Mutex<Option<ServeStream>>>);

impl InProcessStream {
    pub fn new(serve: ServeStream) -> Self {
        Self(Arc::new(Mutex::new(Some(serve))))
    }

    /// `Some` once only.
    pub fn take(&self) -> Option<ServeStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for InProcessStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OpenStream")
    }
}
