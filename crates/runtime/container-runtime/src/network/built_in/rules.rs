//! The firewall rules that pods on the built-in bridge need. Pure.
//!
//! | chain | what |
//! |---|---|
//! | guard | from the bridge to the host's loopback: dropped (CVE-2020-8558's class) |
//! | arriving, own | host port → pod |
//! | leaving | pods to the world, and answers that must come back through the host: masqueraded |

use std::net::{IpAddr, Ipv4Addr};

use netlink::{Chain, Condition, Effect, Family, Hook, Rule, Ruleset};

use super::{HostPort, Member};
use crate::network::addresses::Subnet;

pub(super) fn of<'a>(
    bridge: &str,
    subnets: &[Subnet],
    members: impl Iterator<Item = &'a Member>,
) -> Ruleset {
    let mut forwards = Vec::new();
    for member in members {
        for port in &member.ports {
            forwards.extend(member.addresses.iter().filter_map(|to| forward(port, *to)));
        }
    }
    let chain = |name: &str, hook, priority, rules| Chain {
        name: name.to_owned(),
        hook,
        priority,
        translates: true,
        rules,
    };
    let loopback = Condition::To { network: Ipv4Addr::LOCALHOST.into(), prefix: 8, is: true };
    let guard = Rule {
        conditions: vec![Condition::CameBy { link: bridge.to_owned() }, loopback],
        effect: Effect::Drop,
    };
    let guard_chain =
        Chain { translates: false, ..chain("guard", Hook::Prerouting, -300, vec![guard]) };
    Ruleset {
        chains: vec![
            guard_chain,
            chain("arriving", Hook::Prerouting, -100, forwards.clone()),
            chain("own", Hook::Output, -100, forwards),
            chain("leaving", Hook::Postrouting, 100, leaving(bridge, subnets)),
        ],
    }
}

fn forward(port: &HostPort, to: IpAddr) -> Option<Rule> {
    let target = match port.host_address {
        Some(address) if address.is_ipv4() != to.is_ipv4() => return None,
        Some(address) => {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            Condition::To { network: address, prefix, is: true }
        }
        None => Condition::ToThisMachine,
    };
    let what = Condition::Port { transport: port.transport, port: port.host_port };
    Some(Rule {
        conditions: vec![Condition::Family(Family::of(to)), target, what],
        effect: Effect::ForwardTo { address: to, port: port.container_port },
    })
}

fn leaving(bridge: &str, subnets: &[Subnet]) -> Vec<Rule> {
    let leaves = |is| Condition::LeavesBy { link: bridge.to_owned(), is };
    let masquerade = |conditions| Rule { conditions, effect: Effect::Masquerade };
    let mut rules = Vec::new();
    for subnet in subnets {
        let from = Condition::From { network: subnet.network, prefix: subnet.prefix, is: true };
        let elsewhere = Condition::To { network: subnet.network, prefix: subnet.prefix, is: false };
        rules.push(masquerade(vec![from.clone(), elsewhere, leaves(false)]));
        // A pod that reaches a pod (or itself) by a host port must see the answer come from there.
        rules.push(masquerade(vec![from, leaves(true), Condition::WasForwarded]));
    }
    // The host's own 127.0.0.1 means nothing to a pod.
    let loopback = Condition::From { network: Ipv4Addr::LOCALHOST.into(), prefix: 8, is: true };
    rules.push(masquerade(vec![loopback, leaves(true), Condition::WasForwarded]));
    rules
}
