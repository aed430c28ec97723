//! Requests to shut the agent down, and their sources (signals, a contended lock file).
//!
//! Rule: only the agent stops. No reason here stops a container.

use crate::PortFuture;
use std::fmt;

/// The source of a shutdown request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShutdownReason {
    /// A signal, by its name (`SIGTERM`).
    Signal(&'static str),
    /// Another process opened (or removed) the file of `--lock-file`, and
    /// `--exit-on-lock-contention` is set.
    LockContended { path: String, event: String },
    /// `keelson run` ends with its last pod.
    PodsEnded,
    /// The node's credentials are of no use any more, and a new start may find others.
    CredentialsLost(String),
}

impl fmt::Display for ShutdownReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShutdownReason::Signal(name) => write!(formatter, "received {name}"),
            ShutdownReason::LockContended { path, event } => {
                write!(formatter, "lock file {path} is wanted by another process ({event})")
            }
            ShutdownReason::PodsEnded => formatter.write_str("its last pod ended"),
            ShutdownReason::CredentialsLost(why) => formatter.write_str(why),
        }
    }
}

/// A stream of shutdown requests. The first one shuts the agent down in order, the second one exits
/// at once.
pub trait ShutdownRequests: Send {
    /// Waits for the next request. May be dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, ShutdownReason>;
}
