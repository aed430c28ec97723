//! Errors of one request, with the texts of Go's client.
//!
//! Rule: one variant for each error that a caller distinguishes; users see the texts.

use std::io;
use std::net::SocketAddr;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("dial tcp: lookup {host}: {reason}")]
    Lookup { host: String, reason: String },
    #[error("dial tcp {address}: connect: {reason}")]
    Dial { address: SocketAddr, reason: String },
    #[error("tls: {0}")]
    Tls(String),
    /// The server answers in plain HTTP where TLS was wanted.
    #[error("http: server gave HTTP response to HTTPS client")]
    PlainHttp,
    /// The server closed the connection before it answered.
    #[error("EOF")]
    Closed,
    #[error("read tcp {peer}: read: {reason}")]
    Broken { peer: SocketAddr, reason: String },
    #[error("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {0}")]
    Malformed(String),
    /// The head arrived, but the body is incomplete.
    #[error("unexpected EOF")]
    CutShort,
    #[error("{0}")]
    Request(String),
}

/// The text of a kernel error, as Go writes it.
pub fn errno_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Maps an error of the HTTP library.
pub(crate) fn from_hyper(error: &hyper::Error, peer: SocketAddr) -> HttpError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(this) = cause {
        if let Some(error) = this.downcast_ref::<io::Error>() {
            return from_io(error, peer);
        }
        cause = this.source();
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        HttpError::Closed
    } else if error.is_parse() {
        HttpError::Malformed(error.to_string())
    } else {
        HttpError::Request(error.to_string())
    }
}

pub(crate) fn from_io(error: &io::Error, peer: SocketAddr) -> HttpError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => HttpError::Closed,
        _ => HttpError::Broken { peer, reason: errno_words(error) },
    }
}
