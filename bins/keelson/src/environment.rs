//! The process's environment, read once and passed on as a value.
//!
//! Rule: no other code of this workspace reads an environment variable. (Libraries read two for
//! themselves: TZ for local time, RUST_BACKTRACE for stacks.)

use apiserver_client::ProxyEnvironment;
use host_process::service_notification::ServiceEnvironment;
use std::ffi::OsString;

#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) no_color: Option<OsString>,
    pub(crate) service: ServiceEnvironment,
    /// Host and port of the API server, as a pod finds them.
    pub(crate) cluster_service: Option<(String, String)>,
    /// `HTTPS_PROXY` and its like.
    pub(crate) proxies: ProxyEnvironment,
    /// The crash point at which a test lets this process die; without effect in a release build.
    pub(crate) crash_at: Option<String>,
}

impl Environment {
    /// Arms the crash point of an agent with the runtime in this process.
    pub(crate) fn arm_crash_points(&self) {
        if let Some(point) = &self.crash_at {
            container_runtime::crash_points::arm(point);
            node_agent::crash_points::arm(point);
        }
    }

    pub(crate) fn read() -> Environment {
        Environment {
            no_color: std::env::var_os("NO_COLOR"),
            cluster_service: std::env::var("KUBERNETES_SERVICE_HOST")
                .ok()
                .zip(std::env::var("KUBERNETES_SERVICE_PORT").ok()),
            proxies: ProxyEnvironment::from_variables(|name| std::env::var(name).ok()),
            crash_at: std::env::var("KEELSON_CRASH_AT").ok(),
            service: ServiceEnvironment {
                notify_socket: std::env::var_os("NOTIFY_SOCKET"),
                watchdog_usec: std::env::var_os("WATCHDOG_USEC"),
                watchdog_pid: std::env::var_os("WATCHDOG_PID"),
            },
        }
    }
}
