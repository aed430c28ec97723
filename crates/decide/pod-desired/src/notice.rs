//! What a person should hear about sources and manifests.
//!
//! Rule: one sentence that names the file, and what the agent does about it.

/// A sentence for the log and for whoever asks for the state of the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Something is wrong; a pod may not be what its manifest says.
    Error(String),
    Warning(String),
    Information(String),
}

impl Notice {
    pub fn text(&self) -> &str {
        match self {
            Self::Error(text) | Self::Warning(text) | Self::Information(text) => text,
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}
