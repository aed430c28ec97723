//! The addresses by which others reach this machine.
//!
//! Rule: they may change while the agent runs, and there may be none yet when it starts: whoever
//! needs them asks when they are needed. Asking is cheap and never waits.

use std::net::IpAddr;

pub trait HostAddresses: Send + Sync {
    /// As they are now, first the main one.
    fn now(&self) -> Vec<IpAddr>;
}
