//! Errors of a container's creation, in a form that the supervisor passes on to its client.
//!
//! Rule: the message names the step, the path or value, and the kernel's error. One kind for each
//! case that a caller handles differently.

use std::fmt::Display;
use std::io;

/// Why a container or process could not be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CreateError {
    pub kind: CreateErrorKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CreateErrorKind {
    Other = 0,
    /// The specification is inconsistent, or not possible on this host.
    InvalidSpec = 1,
    /// The program is missing or not executable.
    ProgramNotFound = 2,
    /// The container is not running any more.
    NotRunning = 3,
}

pub(crate) type Result<T, E = CreateError> = std::result::Result<T, E>;

impl CreateError {
    pub(crate) fn invalid_spec(message: impl Into<String>) -> Self {
        Self { kind: CreateErrorKind::InvalidSpec, message: message.into() }
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self { kind: CreateErrorKind::Other, message: message.into() }
    }
}

impl From<cgroup_files::CgroupError> for CreateError {
    fn from(error: cgroup_files::CgroupError) -> Self {
        Self::other(error.to_string())
    }
}

/// Adds the step to a kernel error.
pub(crate) trait During<T> {
    fn during(self, step: impl Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for std::result::Result<T, E> {
    fn during(self, step: impl Display) -> Result<T> {
        self.map_err(|error| CreateError::other(format!("{step}: {}", error.into())))
    }
}
