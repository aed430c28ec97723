//! Links, addresses, routes and nftables by the kernel's own messages.
//!
//! Only what pods need: a bridge, pairs of links, their addresses, a default route, and one table
//! of rules that is replaced as a whole. No program of the machine is run. Blocking; every answer
//! is waited for with a limit. It decides nothing: names, addresses and rules are the caller's.

mod connections;
mod firewall;
mod links;
mod message;
mod namespace;
mod routes;
mod socket;

pub use firewall::{Chain, Condition, Effect, Family, Hook, Rule, Ruleset, Transport};
pub use links::{Link, LinkKind};
pub use message::ParseError;
pub use namespace::{pin_new_namespace, unpin_namespace};
pub use socket::{Error, Socket, in_namespace};

#[cfg(test)]
mod tests;
