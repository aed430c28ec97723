//! One HTTP request over one connection, for callers that send few requests or to many servers:
//! manifest URLs, probes, hooks.
//!
//! Rule: bodies are cut at a limit, redirects are never followed here (which may be followed is the
//! caller's choice; [`Target::join`] resolves one), and a connection is closed without leaving a
//! socket in TIME_WAIT. Errors have the texts of Go's client, since that is what people grep for.
//! No connection pool, no proxy, no cookies; the caller sets the timeout.

mod exchange;
mod failure;
mod line;
mod lookups;
mod target;
mod tls;

#[cfg(test)]
mod tests;

pub use exchange::{Answer, Ask, exchange};
pub use failure::{Failure, errno_words};
pub use line::{Line, dial};
pub use target::{Target, is_redirect};
pub use tls::{any_server, servers_signed_by};
