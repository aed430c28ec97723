//! Turns what the transport reports into errors that a caller can act on.
//!
//! Rule: an error from the runtime and a broken connection to the runtime are never mixed up. The
//! transport attaches a source to errors that it makes itself and none to those that the runtime
//! sent. Does not decide whether to retry.

use std::error::Error;
use std::io;
use std::time::Duration;

use ports::container_runtime::{ContainerRuntimeError, UnavailableCause};
use tonic::{Code, Status};

/// The facts about a call that its errors name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuntimeCallContext<'a> {
    pub(crate) call: &'static str,
    pub(crate) endpoint: &'a str,
    pub(crate) limit: Option<Duration>,
    pub(crate) elapsed: Duration,
}

/// The transport enforces the limit too and rounds it down to whole units of its header, so it may
/// time out this much before our own timer.
const HEADER_ROUNDING: Duration = Duration::from_millis(10);

pub(crate) fn from_status(
    status: &Status,
    context: RuntimeCallContext<'_>,
) -> ContainerRuntimeError {
    let RuntimeCallContext { call, endpoint, limit, elapsed } = context;
    let code = status.code();
    let message = status.message().to_owned();
    if let Some(limit) = limit
        && matches!(code, Code::Cancelled | Code::DeadlineExceeded)
        && elapsed + HEADER_ROUNDING >= limit
    {
        return ContainerRuntimeError::DeadlineExceeded { call, limit };
    }
    if let Some(source) = status.source() {
        return ContainerRuntimeError::Unavailable {
            call,
            endpoint: endpoint.to_owned(),
            cause: cause(source),
            message: innermost(source),
        };
    }
    match code {
        Code::Unavailable => ContainerRuntimeError::Unavailable {
            call,
            endpoint: endpoint.to_owned(),
            cause: UnavailableCause::Broken,
            message,
        },
        Code::Unimplemented => ContainerRuntimeError::Unimplemented { call, message },
        Code::NotFound => ContainerRuntimeError::NotFound { call, message },
        _ => ContainerRuntimeError::Refused { call, code: format!("{code:?}"), message },
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn cause(source: &(dyn Error + 'static)) -> UnavailableCause {
    let kind =
        chain(source).find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::NotFound) => UnavailableCause::NoSocket,
        Some(io::ErrorKind::ConnectionRefused) => UnavailableCause::NotListening,
        Some(io::ErrorKind::PermissionDenied) => UnavailableCause::NotPermitted,
        _ => UnavailableCause::Broken,
    }
}

/// The innermost source says what happened; the errors around it only repeat where.
fn innermost(source: &(dyn Error + 'static)) -> String {
    chain(source).last().map(ToString::to_string).unwrap_or_default()
}
