//! Maps a kernel error to the port's error: whether a retry can help, or an operator must act.

use host_paths::{ApartError, Trouble};
use ports::pod_host::HostError;

pub(crate) fn of_trouble(trouble: &Trouble) -> HostError {
    if trouble.is_passing() {
        HostError::Passing(trouble.to_string())
    } else {
        HostError::Lasting(trouble.to_string())
    }
}

pub(crate) fn of_apart(what: &str, error: &ApartError) -> HostError {
    HostError::Passing(format!("{what}: {error}"))
}
