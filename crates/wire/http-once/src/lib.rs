//! One HTTP request over one connection, for those who ask seldom or ask many: manifest URLs,
//! probes, hooks.
//!
//! Rule: bodies are cut at a limit, redirects are never followed here (who may be followed is the
//! caller's choice; [`Target::join`] says where one leads), and a connection ends without a socket
//! in TIME_WAIT. Failures are worded as Go's client words them, since that is what people grep
//! for. Holds no connection, no proxy, no cookie; the caller sets the limit of time.

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
