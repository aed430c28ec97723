//! One HTTP request over one connection, for callers that send few requests or to many servers:
//! manifest URLs, probes, hooks.
//!
//! Rule: bodies are cut at a limit, redirects are never followed here (which may be followed is the
//! caller's choice; [`RequestTarget::join`] resolves one), and a connection is closed without leaving a
//! socket in TIME_WAIT. Errors have the texts of Go's client, since that is what people grep for.
//! No connection pool, no proxy, no cookies; the caller sets the timeout.

mod exchange;
mod http_error;
mod lookups;
mod target;
mod tcp_connection;
mod tls;

#[cfg(test)]
mod tests;

pub use exchange::{GetRequest, GetResponse, exchange};
pub use http_error::{HttpError, errno_words};
pub use target::{RequestTarget, TargetError, is_redirect};
pub use tcp_connection::{TcpConnection, dial};
pub use tls::{TlsConfigError, insecure_tls_config, tls_config_for_bundle};
