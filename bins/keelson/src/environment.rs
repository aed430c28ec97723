//! The process's environment, read once and passed on as a value.
//!
//! Rule: nothing else of ours reads an environment variable. (Libraries read two for themselves:
//! TZ for local time, RUST_BACKTRACE for stacks.)

use host_process::service_notification::ServiceEnvironment;
use std::ffi::OsString;

#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) no_color: Option<OsString>,
    pub(crate) service: ServiceEnvironment,
}

impl Environment {
    pub(crate) fn read() -> Environment {
        Environment {
            no_color: std::env::var_os("NO_COLOR"),
            service: ServiceEnvironment {
                notify_socket: std::env::var_os("NOTIFY_SOCKET"),
                watchdog_usec: std::env::var_os("WATCHDOG_USEC"),
                watchdog_pid: std::env::var_os("WATCHDOG_PID"),
            },
        }
    }
}
