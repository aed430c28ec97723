//! One small process per pod: it holds the pod's namespaces, is the parent of its containers,
//! writes their logs and keeps their exit codes, while servers restart.
//!
//! Rule: the supervisor knows nothing of CRI and makes no decisions; a server may be killed at any
//! time and the next one recovers the whole state. An exit is on disk before any client sees it.
//! [`SupervisorClient`] is the server's side, [`launch`] starts a supervisor, [`supervisor`] is the
//! process itself, and [`orphans`] reconstructs the status of containers whose supervisor has died.

#![allow(unsafe_code, reason = "fork, signal masks and pidfd ioctls have no safe wrappers")]

#[cfg(feature = "client")]
mod client;
pub mod descriptors;
pub mod kernel_features;
pub mod launch;
pub mod orphans;
pub mod protocol;
mod socket_path;
pub mod supervisor;

#[cfg(feature = "client")]
pub use client::{
    ClientConnection, ClientDriver, ClientError, ExecOptions, StartedExec, StdioDescriptors,
    SupervisorClient,
};
pub use container_create::spec;

/// The socket in a pod's directory.
pub const SOCKET: &str = "supervisor.sock";
