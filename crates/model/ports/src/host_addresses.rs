//! The addresses under which this machine can be reached.
//!
//! Rule: they may change while the agent runs, and there may be none yet when it starts, so they
//! are read each time they are needed. Reading is cheap and never blocks.

use std::net::IpAddr;

pub trait HostAddresses: Send + Sync {
    /// The current addresses, the main one first.
    fn now(&self) -> Vec<IpAddr>;
}
