//! Errors of a registry, one variant for each different reaction of a caller.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{what}: not found")]
    NotFound { what: String },
    /// Credentials are missing or insufficient.
    #[error("{what}: {status}: {response_text}")]
    Denied { what: String, status: u16, response_text: String },
    /// The registry returned another error status; a retry may succeed.
    #[error("{what}: unexpected status {status}: {response_text}")]
    Status { what: String, status: u16, response_text: String },
    /// The registry could not be reached; a retry may succeed.
    #[error("{what}: {reason}")]
    Connection { what: String, reason: String },
    /// The registry violates the protocol.
    #[error("{what}: {reason}")]
    Answer { what: String, reason: String },
    #[error("{what}: {reason}")]
    Settings { what: String, reason: String },
}

impl Error {
    /// Whether a retry of the same request may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status == 408 || *status >= 500,
            _ => false,
        }
    }
}
