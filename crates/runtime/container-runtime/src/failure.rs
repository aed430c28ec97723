//! Errors of CRI calls: a gRPC code and a message.
//!
//! Rule: the code is chosen where the cause is known. Clients act on few codes (`NotFound`,
//! `DeadlineExceeded`, `Unimplemented`); the default is `Unknown`, as in containerd, so that
//! clients which match on codes see no difference.

use std::fmt;

use tonic::{Code, Status};

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriError {
    pub code: Code,
    pub text: String,
}

pub type Result<T, E = CriError> = std::result::Result<T, E>;

impl CriError {
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// With the default code.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(Code::Unknown, text)
    }

    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(Code::NotFound, text)
    }

    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, text)
    }

    pub fn unimplemented(text: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, text)
    }

    /// The same error, with the failed operation before its message.
    #[must_use]
    pub fn with_context(mut self, what: impl fmt::Display) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }
}

impl fmt::Display for CriError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for CriError {}

impl From<CriError> for Status {
    fn from(failure: CriError) -> Self {
        Status::new(failure.code, failure.text)
    }
}

impl From<image_store::Error> for CriError {
    fn from(error: image_store::Error) -> Self {
        use image_store::Error;
        let code = match &error {
            Error::ImageMissing(_) => Code::NotFound,
            Error::Reference(_) | Error::Digest { .. } => Code::InvalidArgument,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

/// Adds the failed operation to an error.
pub(crate) trait CallContext<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<CriError>> CallContext<T> for std::result::Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().with_context(what))
    }
}

impl From<std::io::Error> for CriError {
    fn from(error: std::io::Error) -> Self {
        Self::plain(error.to_string())
    }
}

impl From<rustix::io::Errno> for CriError {
    fn from(error: rustix::io::Errno) -> Self {
        std::io::Error::from(error).into()
    }
}

/// Runs blocking code on tokio's blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(CriError::new(Code::Internal, format!("a blocking task: {error}"))),
    }
}
