//! The port for network probes and hooks of containers.
//!
//! Rule: one attempt, one result, within the timeout given; thresholds and repetition are decided
//! elsewhere. Bodies are truncated, redirects followed only on the same host, certificates not
//! checked (as the reference does not), and no socket is left in TIME_WAIT.

use std::time::Duration;

use crate::PortFuture;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkProbeRequest {
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
pub enum ProbeAttemptResult {
    Success(String),
    /// A success with a warning: a redirect to another host.
    Warning(String),
    Failure(String),
    /// The https server speaks plain HTTP (only hooks distinguish this).
    PlainHttp(String),
}

pub trait NetworkProber: Send + Sync {
    fn attempt<'a>(
        &'a self,
        what: &'a NetworkProbeRequest,
        limit: Duration,
    ) -> PortFuture<'a, ProbeAttemptResult>;
}
