//! Named health checks, and the endpoint that answers for them.
//!
//! Rule: a check is quick and never waits: it reads what a task has published. It says in one
//! sentence what is wrong. The endpoint makes no choice beyond the reply's form.

use crate::PortFuture;
use std::sync::Arc;

/// One thing that must be in order for the agent to call itself healthy.
pub trait HealthCheck: Send + Sync {
    /// The name under which people ask for it (`ping`, `syncloop`).
    fn name(&self) -> &str;
    /// `Err` carries one sentence that says what is wrong.
    fn check(&self) -> Result<(), String>;
}

/// Checks in the order in which they are reported.
pub type HealthChecks = Arc<[Arc<dyn HealthCheck>]>;

/// Serves the checks to whoever asks (liveness probes of the agent itself, kubeadm, people).
pub trait HealthEndpoint: Send + Sync {
    /// Where it serves, for messages.
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
