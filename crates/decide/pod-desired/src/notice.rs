//! Notices to operators about sources and manifests.
//!
//! Rule: one sentence that names the file, and the agent's reaction.

/// A sentence for the log and for the state of the sources in the local API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An error; a pod may differ from its manifest.
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
