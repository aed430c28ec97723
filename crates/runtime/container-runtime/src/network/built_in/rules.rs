//! The firewall rules that pods on the built-in bridge need. Pure.
//!
//! | chain | what |
//! |---|---|
//! | guard | from the bridge to, or in the name of, the host's loopback: dropped (CVE-2020-8558's class) |
//! | arriving, own | host port → pod, where the destination is an address of this machine |
//! | leaving | pods to the world, and answers that must come back through the host: masqueraded |
//!
//! Rule: a host port accepts connections to this host's addresses only, whatever address a pod
//! requests; an address that the host gets later counts from then on. A port of the host's loopback
//! is reachable from the host alone.

use std::net::{IpAddr, Ipv4Addr};

use netlink::{Chain, Condition, Effect, Family, Hook, Rule, Ruleset};

use super::{HostPort, Member};
use crate::network::addresses::Subnet;

#[cfg(test)]
mod tests;

const LOOPBACK: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::LOCALHOST), 8);

pub(super) fn of<'a>(
    bridge: &str,
    subnets: &[Subnet],
    members: impl Iterator<Item = &'a Member>,
) -> Ruleset {
    let (mut arriving, mut own) = (Vec::new(), Vec::new());
    for member in members {
        for port in &member.ports {
            for to in &member.addresses {
                arriving.extend(forward(port, *to, Origin::Elsewhere));
                own.extend(forward(port, *to, Origin::Machine));
            }
        }
    }
    let chain = |name: &str, hook, priority, rules| Chain {
        name: name.to_owned(),
        hook,
        priority,
        translates: true,
        rules,
    };
    let came = || Condition::CameBy { link: bridge.to_owned() };
    let (network, prefix) = LOOPBACK;
    let guard = [
        Condition::To { network, prefix, is: true },
        // The kernel drops these too, except with `accept_local`.
        Condition::From { network, prefix, is: true },
    ];
    let guard =
        guard.map(|loopback| Rule { conditions: vec![came(), loopback], effect: Effect::Drop });
    let guard_chain =
        Chain { translates: false, ..chain("guard", Hook::Prerouting, -300, guard.to_vec()) };
    Ruleset {
        chains: vec![
            guard_chain,
            chain("arriving", Hook::Prerouting, -100, arriving),
            chain("own", Hook::Output, -100, own),
            chain("leaving", Hook::Postrouting, 100, leaving(bridge, subnets)),
        ],
    }
}

/// Where a connection to a host port comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Machine,
    Elsewhere,
}

fn forward(port: &HostPort, to: IpAddr, origin: Origin) -> Option<Rule> {
    let mut conditions = vec![Condition::Family(Family::of(to)), Condition::ToThisMachine];
    let (network, prefix) = LOOPBACK;
    match port.host_address {
        Some(address) if address.is_ipv4() != to.is_ipv4() => return None,
        // A packet from the wire to 127.0.0.1 is a martian, which the kernel drops, but only if its
        // destination is still that when it is routed.
        Some(address) if address.is_loopback() && origin == Origin::Elsewhere => return None,
        Some(address) => {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            conditions.push(Condition::To { network: address, prefix, is: true });
        }
        None if to.is_ipv4() && origin == Origin::Elsewhere => {
            conditions.push(Condition::To { network, prefix, is: false });
        }
        None => {}
    }
    conditions.push(Condition::Port { transport: port.transport, port: port.host_port });
    let effect = Effect::ForwardTo { address: to, port: port.container_port };
    Some(Rule { conditions, effect })
}

fn leaving(bridge: &str, subnets: &[Subnet]) -> Vec<Rule> {
    let leaves = |is| Condition::LeavesBy { link: bridge.to_owned(), is };
    let masquerade = |conditions| Rule { conditions, effect: Effect::Masquerade };
    let mut rules = Vec::new();
    for subnet in subnets {
        let from = Condition::From { network: subnet.network, prefix: subnet.prefix, is: true };
        let elsewhere = Condition::To { network: subnet.network, prefix: subnet.prefix, is: false };
        rules.push(masquerade(vec![from.clone(), elsewhere, leaves(false)]));
        // If a pod reaches a pod (or itself) by a host port, the answer must come from the host.
        rules.push(masquerade(vec![from, leaves(true), Condition::WasForwarded]));
    }
    // The host's own 127.0.0.1 is no valid source inside a pod.
    let (network, prefix) = LOOPBACK;
    let loopback = Condition::From { network, prefix, is: true };
    rules.push(masquerade(vec![loopback, leaves(true), Condition::WasForwarded]));
    rules
}
