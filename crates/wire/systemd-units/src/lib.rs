//! Asks systemd for transient units (slices, scopes) and waits until they are there.
//!
//! Rule: the little of D-Bus that this needs and no more: one connection, one call at a time, every
//! message bounded, every wait limited. Speaks to systemd's own socket, which needs no bus daemon,
//! and to the system bus where that one is closed. Knows no cgroup and no pod. Blocks: to be called
//! where blocking does no harm.

mod connection;
mod message;
mod units;

#[cfg(test)]
mod tests;

pub use message::Value;
pub use units::{Address, Properties, Systemd, UnitError};
