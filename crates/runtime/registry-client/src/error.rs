//! What can go wrong with a registry, one variant for each thing a caller can do differently.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{what}: not found")]
    NotFound { what: String },
    /// Credentials are missing or not good enough.
    #[error("{what}: {status}: {said}")]
    Denied { what: String, status: u16, said: String },
    /// The registry answered with something else; it may be tried again.
    #[error("{what}: unexpected status {status}: {said}")]
    Status { what: String, status: u16, said: String },
    /// The way to the registry is broken; it may be tried again.
    #[error("{what}: {why}")]
    Connection { what: String, why: String },
    /// The registry does not keep to the rules.
    #[error("{what}: {why}")]
    Answer { what: String, why: String },
    #[error("{what}: {why}")]
    Settings { what: String, why: String },
}

impl Error {
    /// Whether the same request may do better later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status == 408 || *status >= 500,
            _ => false,
        }
    }
}
