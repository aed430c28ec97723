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

use netlink::{
    FirewallChain, FirewallRule, IpFamily, NetfilterHook, RuleCondition, RuleVerdict, Ruleset,
};

use super::{HostPort, NetworkMember};
use crate::network::addresses::Subnet;

#[cfg(test)]
mod tests;

const LOOPBACK: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::LOCALHOST), 8);

pub(super) fn of<'a>(
    bridge: &str,
    subnets: &[Subnet],
    members: impl Iterator<Item = &'a NetworkMember>,
) -> Ruleset {
    let (mut arriving, mut own) = (Vec::new(), Vec::new());
    for member in members {
        for port in &member.ports {
            for to in &member.addresses {
                arriving.extend(forward(port, *to, ConnectionOrigin::Elsewhere));
                own.extend(forward(port, *to, ConnectionOrigin::Machine));
            }
        }
    }
    let chain = |name: &str, hook, priority, rules| FirewallChain {
        name: name.to_owned(),
        hook,
        priority,
        translates: true,
        rules,
    };
    let arrived = || RuleCondition::InputInterface { link: bridge.to_owned() };
    let (network, prefix) = LOOPBACK;
    let guard = [
        RuleCondition::DestinationNetwork { network, prefix, equal: true },
        // The kernel drops these too, except with `accept_local`.
        RuleCondition::SourceNetwork { network, prefix, equal: true },
    ];
    let guard = guard.map(|loopback| FirewallRule {
        conditions: vec![arrived(), loopback],
        verdict: RuleVerdict::Drop,
    });
    let guard_chain = FirewallChain {
        translates: false,
        ..chain("guard", NetfilterHook::Prerouting, -300, guard.to_vec())
    };
    Ruleset {
        chains: vec![
            guard_chain,
            chain("arriving", NetfilterHook::Prerouting, -100, arriving),
            chain("own", NetfilterHook::Output, -100, own),
            chain("leaving", NetfilterHook::Postrouting, 100, leaving(bridge, subnets)),
        ],
    }
}

/// Where a connection to a host port comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionOrigin {
    Machine,
    Elsewhere,
}

fn forward(port: &HostPort, to: IpAddr, origin: ConnectionOrigin) -> Option<FirewallRule> {
    let mut conditions =
        vec![RuleCondition::Family(IpFamily::of(to)), RuleCondition::LocalDestination];
    let (network, prefix) = LOOPBACK;
    match port.host_address {
        Some(address) if address.is_ipv4() != to.is_ipv4() => return None,
        // A packet from the wire to 127.0.0.1 is a martian, which the kernel drops, but only if its
        // destination is still that when it is routed.
        Some(address) if address.is_loopback() && origin == ConnectionOrigin::Elsewhere => {
            return None;
        }
        Some(address) => {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            conditions.push(RuleCondition::DestinationNetwork {
                network: address,
                prefix,
                equal: true,
            });
        }
        None if to.is_ipv4() && origin == ConnectionOrigin::Elsewhere => {
            conditions.push(RuleCondition::DestinationNetwork { network, prefix, equal: false });
        }
        None => {}
    }
    conditions.push(RuleCondition::Port { transport: port.transport, port: port.host_port });
    let verdict = RuleVerdict::DestinationNat { address: to, port: port.container_port };
    Some(FirewallRule { conditions, verdict })
}

fn leaving(bridge: &str, subnets: &[Subnet]) -> Vec<FirewallRule> {
    let leaves = |equal| RuleCondition::OutputInterface { link: bridge.to_owned(), equal };
    let masquerade = |conditions| FirewallRule { conditions, verdict: RuleVerdict::Masquerade };
    let mut rules = Vec::new();
    for subnet in subnets {
        let from = RuleCondition::SourceNetwork {
            network: subnet.network,
            prefix: subnet.prefix,
            equal: true,
        };
        let elsewhere = RuleCondition::DestinationNetwork {
            network: subnet.network,
            prefix: subnet.prefix,
            equal: false,
        };
        rules.push(masquerade(vec![from.clone(), elsewhere, leaves(false)]));
        // If a pod reaches a pod (or itself) by a host port, the answer must come from the host.
        rules.push(masquerade(vec![from, leaves(true), RuleCondition::DestinationNatted]));
    }
    // The host's own 127.0.0.1 is no valid source inside a pod.
    let (network, prefix) = LOOPBACK;
    let loopback = RuleCondition::SourceNetwork { network, prefix, equal: true };
    rules.push(masquerade(vec![loopback, leaves(true), RuleCondition::DestinationNatted]));
    rules
}
