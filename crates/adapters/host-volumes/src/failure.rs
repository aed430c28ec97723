//! A step's error, in a form that can cross to another process.

use host_paths::Trouble;
use ports::pod_host::HostError;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepFailure {
    pub(crate) passing: bool,
    pub(crate) text: String,
}

impl StepFailure {
    pub(crate) fn lasting(text: impl Into<String>) -> Self {
        Self { passing: false, text: text.into() }
    }
}

impl From<Trouble> for StepFailure {
    fn from(trouble: Trouble) -> Self {
        Self { passing: trouble.is_passing(), text: trouble.to_string() }
    }
}

impl From<StepFailure> for HostError {
    fn from(failure: StepFailure) -> Self {
        if failure.passing { Self::Passing(failure.text) } else { Self::Lasting(failure.text) }
    }
}
