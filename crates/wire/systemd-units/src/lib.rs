//! Starts and stops transient systemd units (slices, scopes) and waits until that is done.
//!
//! Rule: the minimum of D-Bus: one connection, one call at a time, every message bounded, every
//! wait limited. Uses systemd's private socket, which needs no bus daemon, and the system bus if
//! that one is not available. Knows no cgroup and no pod. Blocks: not to be called from async code.

mod connection;
mod message;
mod units;

#[cfg(test)]
mod tests;

pub use message::PropertyValue;
pub use units::{Properties, Systemd, SystemdAddress, UnitError};
