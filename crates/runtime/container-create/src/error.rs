//! What went wrong while a container was made, in a form that travels to whoever asked.
//!
//! Rule: says the step, the path or value, and the kernel's word. One kind for each thing that a
//! caller can do differently.

use std::fmt::Display;
use std::io;

/// Why a container or process could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    pub kind: TroubleKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TroubleKind {
    Other = 0,
    /// The specification contradicts itself or this machine.
    BadSpec = 1,
    /// The program is missing or may not be run.
    NoProgram = 2,
    /// The container is not running any more.
    Gone = 3,
}

pub(crate) type Result<T, E = Trouble> = std::result::Result<T, E>;

impl Trouble {
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self { kind: TroubleKind::BadSpec, message: message.into() }
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self { kind: TroubleKind::Other, message: message.into() }
    }
}

impl From<cgroup_files::CgroupError> for Trouble {
    fn from(error: cgroup_files::CgroupError) -> Self {
        Self::other(error.to_string())
    }
}

/// Adds the step to an error of the kernel.
pub(crate) trait During<T> {
    fn during(self, step: impl Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for std::result::Result<T, E> {
    fn during(self, step: impl Display) -> Result<T> {
        self.map_err(|error| Trouble::other(format!("{step}: {}", error.into())))
    }
}
