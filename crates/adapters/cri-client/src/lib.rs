//! Calls a CRI v1 runtime, every call with a deadline.
//!
//! Rule: this crate transports requests and responses and returns errors that a caller can act on
//! ([`ports::container_runtime::ContainerRuntimeError`]). Does not retry, cache or decide. The
//! transport is a boxed service: a unix socket, or a runtime in the same process.

mod call_counts;
mod call_error;
mod calls;
mod client;
mod endpoint;
mod limits;
mod local_port;
mod open_streams;
mod pod_port;
mod runtime_port;
mod streams;
mod transport;

#[cfg(test)]
mod tests;

pub use client::CriClient;
pub use endpoint::{Endpoint, EndpointError};
pub use limits::{CallLimits, EXEC_LIMIT, PULL_LIMIT};
pub use streams::ContainerEventStream;
pub use transport::RuntimeTransport;
