//! Why the agent should end, and where such requests come from (signals, a contended lock file).
//!
//! Rule: ending the agent ends nothing else. No reason here stops a container.

use crate::PortFuture;
use std::fmt;

/// What asked the agent to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// A signal, by its name (`SIGTERM`).
    Signal(&'static str),
    /// Another process opened (or removed) the file that `--lock-file` names, and
    /// `--exit-on-lock-contention` says that this one should give way.
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

/// A stream of requests to end. The first one ends the agent in order, the second at once.
pub trait EndRequests: Send {
    /// Waits for the next request. May be dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, EndReason>;
}
