//! The seam through which a container's network ends are tried.
//!
//! Rule: one try, one answer, within the limit given; thresholds and repetition are decisions.
//! Bodies are cut, redirects followed only on the same host, certificates not checked (as the
//! reference does not), and no socket is left in TIME_WAIT.

use std::time::Duration;

use crate::PortFuture;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkTry {
    Http {
        /// `http` or `https`.
        scheme: &'static str,
        host: String,
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
        /// `kube-probe/1.36` for probes, `kube-lifecycle/1.36` for hooks.
        user_agent: String,
    },
    Tcp {
        host: String,
        port: u16,
    },
    Grpc {
        host: String,
        port: u16,
        service: String,
        user_agent: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryAnswer {
    Success(String),
    /// It answered well, but not as it should: a redirect to another host.
    Warning(String),
    Failure(String),
    /// The https end speaks plain HTTP (only a hook asks for this).
    PlainHttp(String),
}

pub trait NetworkProber: Send + Sync {
    fn attempt<'a>(&'a self, what: &'a NetworkTry, limit: Duration) -> PortFuture<'a, TryAnswer>;
}
