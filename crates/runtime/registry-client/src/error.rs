//! Errors of a registry, one variant for each different reaction of a caller.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{what}: not found")]
    NotFound { what: String },
    /// Credentials are missing or insufficient.
    #[error("{what}: {status}: {said}")]
    Denied { what: String, status: u16, said: String },
    /// The registry returned another error status; a retry may succeed.
    #[error("{what}: unexpected status {status}: {said}")]
    Status { what: String, status: u16, said: String },
    /// The registry could not be reached; a retry may succeed.
    #[error("{what}: {why}")]
    Connection { what: String, why: String },
    /// The registry violates the protocol.
    #[error("{what}: {why}")]
    Answer { what: String, why: String },
    #[error("{what}: {why}")]
    Settings { what: String, why: String },
}

impl Error {
    /// Whether a retry of the same request may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status == 408 || *status >= 500,
            _ => false,
        }
    }
}
