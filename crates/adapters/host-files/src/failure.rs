//! What the kernel said, as the port has it: will waiting help, or must somebody act?

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
