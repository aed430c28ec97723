//! TCP probe: whether a port accepts connections (upstream: pkg/probe/tcp).
//!
//! Rule: the connection is closed in order and leaves no socket in TIME_WAIT (see `http_once`).

use std::time::Duration;

use http_once::dial;
use ports::probing::ProbeAttemptResult;

#[cfg(test)]
mod tests;

pub(crate) async fn attempt(host: &str, port: u16, limit: Duration) -> ProbeAttemptResult {
    match tokio::time::timeout(limit, dial(host, port)).await {
        Ok(Ok(_line)) => ProbeAttemptResult::Success(String::new()),
        Ok(Err(failure)) => ProbeAttemptResult::Failure(failure.to_string()),
        Err(_) => ProbeAttemptResult::Failure(format!(
            "dial tcp {}: i/o timeout",
            join_host_port(host, port)
        )),
    }
}

/// A host and port as Go writes them.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
