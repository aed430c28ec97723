//! A volume step's error, serializable because a step may run in another process.

use host_paths::PathError;
use ports::pod_host::HostError;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepError {
    #[serde(rename = "passing")]
    pub(crate) transient: bool,
    pub(crate) text: String,
}

impl StepError {
    pub(crate) fn permanent(text: impl Into<String>) -> Self {
        Self { transient: false, text: text.into() }
    }
}

impl From<PathError> for StepError {
    fn from(path_error: PathError) -> Self {
        Self { transient: path_error.is_transient(), text: path_error.to_string() }
    }
}

impl From<StepError> for HostError {
    fn from(step_error: StepError) -> Self {
        if step_error.transient {
            Self::Transient(step_error.text)
        } else {
            Self::Permanent(step_error.text)
        }
    }
}
