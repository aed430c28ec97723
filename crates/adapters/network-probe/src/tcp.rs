//! TCP probe: whether a port accepts connections (upstream: pkg/probe/tcp).
//!
//! Rule: the connection is closed in order and leaves no socket in TIME_WAIT (see `http_once`).

use std::time::Duration;

use http_once::dial;
use ports::probing::TryAnswer;

#[cfg(test)]
mod tests;

pub(crate) async fn attempt(host: &str, port: u16, limit: Duration) -> TryAnswer {
    match tokio::time::timeout(limit, dial(host, port)).await {
        Ok(Ok(_line)) => TryAnswer::Success(String::new()),
        Ok(Err(failure)) => TryAnswer::Failure(failure.to_string()),
        Err(_) => TryAnswer::Failure(format!("dial tcp {}: i/o timeout", end(host, port))),
    }
}

/// A host and port as Go writes them.
pub(crate) fn end(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
