//! Turns a failed call into one line that says what to do.
//!
//! Rule: first what happened, then the next step. Does not hide the runtime's own message.

use anyhow::{Error, anyhow};
use ports::container_runtime::{ContainerRuntimeError, UnavailableCause};

pub(super) fn explain(error: ContainerRuntimeError) -> Error {
    match error {
        ContainerRuntimeError::Unavailable { endpoint, cause, message, call } => match cause {
            UnavailableCause::NoSocket | UnavailableCause::NotListening => anyhow!(
                "no runtime listens on {endpoint}; start containerd or give --runtime-endpoint"
            ),
            UnavailableCause::NotPermitted => {
                anyhow!("this user may not open {endpoint}; run the command as root")
            }
            UnavailableCause::Broken => anyhow!(
                "{call}: what listens on {endpoint} broke the connection ({message}); \
                 see the runtime's log, and that the endpoint is a CRI socket"
            ),
        },
        ContainerRuntimeError::DeadlineExceeded { call, limit } => anyhow!(
            "{call}: no answer within {limit:?}; see the runtime's log, or give a longer --timeout"
        ),
        ContainerRuntimeError::Unimplemented { call, message } => anyhow!(
            "this runtime does not offer {call} over CRI v1 ({message}); \
             see `keelson cri-client version`, or give --image-endpoint if another one has images"
        ),
        ContainerRuntimeError::NotFound { call, message } => {
            anyhow!("{call}: not found: {message}; list what is there with pods, ps -a or images")
        }
        refused @ ContainerRuntimeError::Refused { .. } => refused.into(),
    }
}
