//! Panics as log lines: what, where, in which task.
//!
//! Rule: a panic is reported in the log's own format and nowhere else; whether it ends anything is
//! decided where it is caught (the task tree), not here. With `RUST_BACKTRACE` set, the stack is
//! included. The report waits briefly to be written: the process may end with the panic.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::time::Duration;
use tracing::error;

/// Enough for any reader that reads, and short enough for a thread that goes on.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Replaces the default report on standard error.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(report));
}

fn report(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic without a message");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let task = node_agent::current_task();
    let task = task.as_deref().unwrap_or("none");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        error!(task, panic = message, location, stacktrace = %backtrace, "Observed a panic");
    } else {
        error!(task, panic = message, location, "Observed a panic");
    }
    super::flush(FLUSH_TIMEOUT);
}
