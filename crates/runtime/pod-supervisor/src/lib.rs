//! One small process per pod: it holds the pod's namespaces, is the parent of its containers, writes
//! their logs and keeps their exit codes, while servers come and go.
//!
//! Rule: the supervisor knows no CRI and decides nothing; a server may be killed at any instant and
//! the next one finds everything. An exit is on disk before anybody hears of it. [`Client`] is the
//! server's side, [`launch`] starts a supervisor, [`supervisor`] is the process itself,
//! [`afterwards`] tells what can be known when a supervisor has died.

#![allow(unsafe_code, reason = "fork, signal masks and pidfd ioctls have no safe wrappers")]

pub mod abilities;
pub mod afterwards;
#[cfg(feature = "client")]
mod client;
pub mod descriptors;
pub mod launch;
pub mod protocol;
mod socket_path;
pub mod supervisor;

#[cfg(feature = "client")]
pub use client::{Client, ClientError, Connection, Driver, ExecRequest, StartedExec, Stdio};
pub use container_create::spec;

/// The socket in a pod's folder.
pub const SOCKET: &str = "supervisor.sock";
