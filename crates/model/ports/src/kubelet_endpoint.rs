//! The server of the node's authenticated port (10250).
//!
//! Rule: it answers from what the agent has published ([`LocalApi`], [`HealthChecks`]);
//! authentication and authorization belong to the server.

pub mod container_log_reader;

use std::sync::Arc;

use crate::PortFuture;
use crate::health::HealthChecks;
use crate::local_api::LocalApi;

/// The sources that the port answers from.
#[derive(Clone)]
pub struct KubeletApi {
    pub checks: HealthChecks,
    pub local: Arc<dyn LocalApi>,
}

/// Serves the node's port.
pub trait KubeletEndpoint: Send + Sync {
    /// The listen address, for messages.
    fn address(&self) -> String;
    /// Serves until dropped; returns only when it cannot serve (any more).
    fn serve(&self, api: KubeletApi) -> PortFuture<'_, KubeletEndpointError>;
}

/// Why the port is not served. Worth a retry: the address may become free, the file may appear.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum KubeletEndpointError {
    #[error("cannot listen on {address}: {cause}")]
    Listen { address: String, cause: String },
    /// A certificate, key or CA file cannot be used.
    #[error("{cause}")]
    Credentials { cause: String },
    #[error("the port at {address} is no longer served")]
    Ended { address: String },
}
