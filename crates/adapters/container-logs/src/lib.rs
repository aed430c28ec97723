//! Reads the log files of containers: across rotated files, the last lines, as they grow.
//!
//! Rule: memory use does not depend on the log's size: whole lines are passed on as they are read,
//! and a line longer than [`MAX_LINE_BYTES`] comes in pieces. Lines that are not in the CRI log
//! format are skipped. Reading blocks on the disk; [`HostContainerLogs`] reads for servers, and
//! [`follow`] waits without polling.

mod files;
mod follow;
mod port;
mod read;

pub use files::{LogFile, log_files};
pub use follow::follow;
pub use port::HostContainerLogs;
pub use read::{LogEntry, LogSelection, MAX_LINE_BYTES, read_logs};

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the log {path}: {cause}")]
pub struct LogError {
    pub path: String,
    pub cause: std::io::Error,
}
