//! Named health checks, and the endpoint that answers for them.
//!
//! Rule: a check never blocks: it reads what a task has published, and returns one sentence that
//! names the fault. The endpoint decides nothing but the form of the reply.

use crate::PortFuture;
use std::sync::Arc;

/// One check that must pass for the agent to report itself healthy.
pub trait HealthCheck: Send + Sync {
    /// The name under which the endpoint serves it (`ping`, `syncloop`).
    fn name(&self) -> &str;
    /// `Err` carries one sentence that names the fault.
    fn check(&self) -> Result<(), String>;
}

/// Checks in the order in which they are reported.
pub type HealthChecks = Arc<[Arc<dyn HealthCheck>]>;

/// Serves the checks over HTTP (to liveness probes of the agent itself, kubeadm, operators).
pub trait HealthEndpoint: Send + Sync {
    /// The listen address, for messages.
    fn address(&self) -> String;
    /// Serves until dropped; returns only when it cannot serve (any more).
    fn serve(&self, checks: HealthChecks) -> PortFuture<'_, HealthEndpointError>;
}

/// Why a health endpoint does not serve. Always worth a retry: the port may become free.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum HealthEndpointError {
    #[error("cannot listen on {address}: {cause}")]
    Listen { address: String, cause: String },
}
