//! Links, addresses, routes and nftables over netlink.
//!
//! Only what pods need: a bridge, veth pairs, their addresses, a default route, and one table of
//! rules that is replaced as a whole. No external program is run. Blocking; every answer has a
//! timeout. Decides nothing: names, addresses and rules are the caller's.

mod connections;
mod firewall;
mod links;
mod message;
mod namespace;
mod routes;
mod socket;

pub use firewall::{
    FirewallChain, FirewallRule, IpFamily, IpTransport, NetfilterHook, RuleCondition, RuleVerdict,
    Ruleset,
};
pub use links::{Link, LinkKind, VethPair};
pub use message::ParseError;
pub use namespace::{pin_new_namespace, unpin_namespace};
pub use socket::{NetlinkError, NetlinkSocket, in_namespace};

#[cfg(test)]
mod tests;
