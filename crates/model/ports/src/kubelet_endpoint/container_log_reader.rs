//! The port to the text of containers' logs, for the servers that pass it on.
//!
//! Rule: lines come in parts of limited size when the server asks for them, so that a client that
//! does not read costs neither memory nor a thread. Which container, how its lines are shown and
//! when it has ended is decided elsewhere.

use crate::{ApiTime, PortFuture};

/// Which lines of a log to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerLogSelection {
    /// At most the last so many of what is written already.
    pub tail: Option<u64>,
    /// Not older than this.
    pub since: Option<ApiTime>,
    /// Whether later lines are read too.
    pub follow: bool,
}

/// A piece of a container's output, from either stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLogLine {
    /// RFC 3339, as the runtime wrote it.
    pub time: String,
    /// Whether the line continues in the next piece of the same stream.
    pub is_partial: bool,
    pub text: Vec<u8>,
}

/// Why a log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContainerLogError(pub String);

/// Reads container logs.
pub trait ContainerLogReader: Send + Sync {
    /// Opens the log at an absolute path, with the files that were rotated away from it.
    fn open<'a>(
        &'a self,
        path: &'a str,
        selection: ContainerLogSelection,
    ) -> PortFuture<'a, Result<Box<dyn OpenContainerLog>, ContainerLogError>>;
}

/// A log that is being read.
pub trait OpenContainerLog: Send + Sync {
    /// The next lines; empty if all that is written has been read.
    fn read(&mut self) -> PortFuture<'_, Result<Vec<ContainerLogLine>, ContainerLogError>>;
    /// Waits until more may have been written. Returns at once if the log is not followed.
    fn changed(&self) -> PortFuture<'_, Result<(), ContainerLogError>>;
}
