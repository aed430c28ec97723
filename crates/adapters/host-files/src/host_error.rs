//! Maps a kernel error to the port's error: whether a retry can help, or an operator must act.

use host_paths::{BlockingPoolError, PathError};
use ports::pod_host::HostError;

pub(crate) fn from_path_error(path_error: &PathError) -> HostError {
    if path_error.is_transient() {
        HostError::Transient(path_error.to_string())
    } else {
        HostError::Permanent(path_error.to_string())
    }
}

pub(crate) fn from_pool_error(what: &str, error: &BlockingPoolError) -> HostError {
    HostError::Transient(format!("{what}: {error}"))
}
