//! Which addresses the node reports.
//!
//! Rule: `--node-ip` first, then a host name that is an address, then what the name resolves to,
//! then the address of the default route. A configured address must be on this machine. With an
//! external cloud provider, addresses that are in the object already are the provider's.
//!
//! upstream: pkg/kubelet/nodestatus/setters.go (NodeAddress), kubelet_node_status.go (validateNodeIP)

use std::collections::BTreeSet;
use std::net::IpAddr;

use ports::cluster_objects::NodeAddress;
use ports::node_object::NodeObject;

/// Tells an external cloud provider which address the node was given.
pub const PROVIDED_ADDRESS: &str = "alpha.kubernetes.io/provided-node-ip";

/// What the host knows of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddressSources {
    /// `--node-ip`: at most one of each family.
    pub node_ips: Vec<IpAddr>,
    /// Of all interfaces.
    pub of_host: BTreeSet<IpAddr>,
    /// What the node's name resolves to, in the resolver's order.
    pub by_name: Vec<IpAddr>,
    /// Of the interfaces of the default routes.
    pub default_v4: Option<IpAddr>,
    pub default_v6: Option<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeAddressError {
    #[error("--node-ip {address}: {reason}")]
    Unusable { address: IpAddr, reason: &'static str },
    #[error(
        "no address for node {node}: its name resolves to none of this machine's addresses and \
         there is no default route; set --node-ip"
    )]
    NotFound { node: String },
}

/// The addresses to report, and the value of the annotation [`PROVIDED_ADDRESS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenAddresses {
    pub addresses: Vec<NodeAddress>,
    pub annotation: Option<String>,
}

/// The request: names, and the object's current addresses.
#[derive(Clone, Copy, Debug)]
pub struct AddressRequest<'a> {
    pub node_name: &'a str,
    pub hostname: &'a str,
    pub external_cloud_provider: bool,
    pub existing: &'a [NodeAddress],
}

pub fn choose(
    request: AddressRequest<'_>,
    facts: &HostAddressSources,
) -> Result<ChosenAddresses, NodeAddressError> {
    let specified: Vec<IpAddr> =
        facts.node_ips.iter().copied().filter(|ip| !ip.is_unspecified()).collect();
    for ip in &specified {
        usable(*ip, &facts.of_host)?;
    }
    let first_is_specified = facts.node_ips.first().is_some_and(|ip| !ip.is_unspecified());
    let annotation = (request.external_cloud_provider && first_is_specified)
        .then(|| specified.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(","));
    let hostname = address("Hostname", request.hostname);
    if request.external_cloud_provider && !request.existing.is_empty() {
        return Ok(ChosenAddresses { addresses: request.existing.to_vec(), annotation });
    }
    if request.external_cloud_provider && facts.node_ips.is_empty() {
        return Ok(ChosenAddresses { addresses: vec![hostname], annotation });
    }
    let internal = if first_is_specified {
        specified
    } else {
        let found = without_node_ip(request.hostname, facts);
        vec![
            found
                .ok_or_else(|| NodeAddressError::NotFound { node: request.node_name.to_owned() })?,
        ]
    };
    let internal = internal.iter().map(|ip| address("InternalIP", &ip.to_string()));
    Ok(ChosenAddresses { addresses: internal.chain([hostname]).collect(), annotation })
}

fn without_node_ip(hostname: &str, facts: &HostAddressSources) -> Option<IpAddr> {
    if let Ok(ip) = pod_model::parse_ip(hostname) {
        return Some(ip);
    }
    let prefers_v4 = facts.node_ips.first().is_none_or(IpAddr::is_ipv4);
    let ours: Vec<IpAddr> =
        facts.by_name.iter().copied().filter(|ip| usable(*ip, &facts.of_host).is_ok()).collect();
    let preferred = ours.iter().find(|ip| ip.is_ipv4() == prefers_v4).or(ours.first()).copied();
    let routes = if prefers_v4 {
        facts.default_v4.or(facts.default_v6)
    } else {
        facts.default_v6.or(facts.default_v4)
    };
    preferred.or(routes)
}

fn usable(address: IpAddr, of_host: &BTreeSet<IpAddr>) -> Result<(), NodeAddressError> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let reason = if address.is_loopback() {
        "a loopback address cannot be reached from other machines"
    } else if address.is_multicast() {
        "a multicast address is no machine's"
    } else if link_local {
        "a link-local address cannot be reached from other networks"
    } else if address.is_unspecified() {
        "it names no address"
    } else if !of_host.contains(&address) {
        "no interface of this machine has it"
    } else {
        return Ok(());
    };
    Err(NodeAddressError::Unusable { address, reason })
}

fn address(kind: &str, address: &str) -> NodeAddress {
    NodeAddress { kind: kind.to_owned(), address: address.to_owned() }
}

/// The addresses that pods report as their host's: the first internal one, else the first external
/// one, and the next of the other family.
///
/// upstream: pkg/util/node/node.go (GetNodeHostIPs)
pub fn host_ips(node: &NodeObject) -> Vec<String> {
    let of_kind = |kind: &'static str| {
        let addresses = node.status.addresses.iter().filter(move |address| address.kind == kind);
        addresses.filter_map(|address| pod_model::parse_ip(&address.address).ok())
    };
    let all: Vec<IpAddr> = of_kind("InternalIP").chain(of_kind("ExternalIP")).collect();
    let Some(first) = all.first() else { return Vec::new() };
    let second = all.iter().find(|ip| ip.is_ipv6() != first.is_ipv6());
    [Some(first), second].into_iter().flatten().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
