//! Requests to shut the agent down, and their sources (signals, a contended lock file).
//!
//! Rule: only the agent stops. No reason here stops a container.

use crate::PortFuture;
use std::fmt;

/// The source of a shutdown request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// A signal, by its name (`SIGTERM`).
    Signal(&'static str),
    /// Another process opened (or removed) the file of `--lock-file`, and
    /// `--exit-on-lock-contention` is set.
    LockContended { path: String, event: String },
}

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Signal(name) => write!(formatter, "received {name}"),
            EndReason::LockContended { path, event } => {
                write!(formatter, "lock file {path} is wanted by another process ({event})")
            }
        }
    }
}

/// A stream of shutdown requests. The first one shuts the agent down in order, the second one exits
/// at once.
pub trait EndRequests: Send {
    /// Waits for the next request. May be dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, EndReason>;
}
