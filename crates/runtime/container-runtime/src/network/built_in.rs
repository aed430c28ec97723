//! The built-in network: one bridge, a veth pair for each pod, addresses round robin, masquerading
//! and host ports by one nftables table that is replaced as a whole.
//!
//! Rule: the table is always derived from the pods in memory, which are derived from the records,
//! so no rule outlives its pod. Bridge and table are removed with the last pod. One change at a
//! time; each takes milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine_claims::HeldClaim;
use netlink::{Link, LinkKind, NetlinkSocket, Ruleset, VethPair};

use super::addresses::Subnet;
use super::{INSIDE, PodNetwork};
use crate::failure::{CriError, Result};
use crate::records::{NetworkKind, NetworkRecord};
use ownership::LinkOwner;

mod link_settings;
mod ownership;
mod rules;
#[cfg(test)]
mod test_machine;
#[cfg(test)]
mod tests;

/// Settings of the built-in network.
#[derive(Debug, Clone)]
pub struct BuiltInSettings {
    pub bridge: String,
    /// At most one per IP version; the pod's primary address is of the first.
    pub subnets: Vec<Subnet>,
    pub mtu: Option<u32>,
}

impl Default for BuiltInSettings {
    fn default() -> Self {
        let network = std::net::Ipv4Addr::new(10, 88, 0, 0).into();
        Self {
            bridge: "keelson0".to_owned(),
            subnets: vec![Subnet { network, prefix: 16 }],
            mtu: None,
        }
    }
}

/// A host port that leads to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) transport: netlink::IpTransport,
    pub(crate) host_port: u16,
    pub(crate) container_port: u16,
    /// None for every address of the host.
    pub(crate) host_address: Option<IpAddr>,
}

impl HostPort {
    fn claimed(&self) -> machine_claims::ClaimedPort {
        let transport = match self.transport {
            netlink::IpTransport::Tcp => machine_claims::ClaimedPortProtocol::Tcp,
            netlink::IpTransport::Udp => machine_claims::ClaimedPortProtocol::Udp,
            netlink::IpTransport::Sctp => machine_claims::ClaimedPortProtocol::Sctp,
        };
        machine_claims::ClaimedPort {
            transport,
            number: self.host_port,
            address: self.host_address,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct NetworkMember {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ports: Vec<HostPort>,
    link: String,
}

/// Deletes conntrack entries of datagrams to these host ports: otherwise a peer that keeps its
/// source port reaches the former pod's address for as long as it keeps sending.
fn forget_datagrams(ports: &[HostPort]) {
    let is_udp = |port: &&HostPort| port.transport == netlink::IpTransport::Udp;
    let ports: Vec<&HostPort> = ports.iter().filter(is_udp).collect();
    if ports.is_empty() {
        return;
    }
    // Connections of pods to the same port elsewhere are not the host port's.
    let is_of_machine = |address: IpAddr| std::net::UdpSocket::bind((address, 0)).is_ok();
    let forgotten = NetlinkSocket::connections().and_then(|mut connections| {
        connections.delete_udp_connections(|address, number| {
            let leads = |port: &&HostPort| {
                port.host_port == number && port.host_address.is_none_or(|own| own == address)
            };
            ports.iter().any(leads) && is_of_machine(address)
        })
    });
    if let Err(error) = forgotten {
        tracing::warn!(%error, "datagrams to host ports may go to former pods for a while");
    }
}

impl NetworkMember {
    /// Whether a port of the host's 127.0.0.0/8 leads to it.
    fn has_loopback_port(&self) -> bool {
        let reaches = |port: &HostPort| match port.host_address {
            None => true,
            Some(IpAddr::V4(address)) => address.is_loopback(),
            Some(IpAddr::V6(_)) => false,
        };
        self.addresses.iter().any(IpAddr::is_ipv4) && self.ports.iter().any(reaches)
    }
}

#[derive(Debug)]
pub(crate) struct BuiltIn {
    settings: BuiltInSettings,
    /// The id of the root that owns bridge, links and rules.
    owner: String,
    /// The root's claim on host ports; none in trials.
    claim: Option<Arc<HeldClaim>>,
    members: Mutex<NetworkMembers>,
    /// Opens a netlink socket for nftables; replaced in tests.
    firewall: fn() -> std::result::Result<NetlinkSocket, netlink::NetlinkError>,
}

#[derive(Debug, Default)]
struct NetworkMembers {
    pods: BTreeMap<String, NetworkMember>,
    last: BTreeMap<bool, IpAddr>,
}

impl BuiltIn {
    /// Without a root: for trials.
    pub(crate) fn new(settings: BuiltInSettings) -> Result<Self> {
        if settings.subnets.is_empty() {
            return Err(CriError::invalid("the built-in network has no range of addresses"));
        }
        Ok(Self::of(settings, "no-root", None))
    }

    /// Without an address range the network exists and is not ready.
    pub(crate) fn of_root(settings: BuiltInSettings, owner: &str, claim: Arc<HeldClaim>) -> Self {
        Self::of(settings, owner, Some(claim))
    }

    fn of(settings: BuiltInSettings, owner: &str, claim: Option<Arc<HeldClaim>>) -> Self {
        let (owner, members) = (owner.to_owned(), Mutex::default());
        Self { settings, owner, claim, members, firewall: NetlinkSocket::firewall }
    }

    fn members(&self) -> MutexGuard<'_, NetworkMembers> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ipv6(&self) -> bool {
        self.settings.subnets.iter().any(|subnet| subnet.network.is_ipv6())
    }

    fn table(&self) -> String {
        format!("keelson-{}", self.settings.bridge)
    }

    pub(super) fn readiness(&self) -> std::result::Result<(), String> {
        if self.settings.subnets.is_empty() {
            return Err("the built-in network found no free range of addresses on this machine; \
                        choose one with `network.subnets` of the runtime's settings"
                .to_owned());
        }
        let firewall = (self.firewall)()
            .and_then(|mut firewall| firewall.has_table(&self.table()))
            .map_err(|error| format!("the built-in network needs nftables: {error}"));
        firewall.map(drop)
    }

    /// Why pods do not get addresses of this range (one per IP version, separated by a comma); none
    /// if they do.
    pub(super) fn range_mismatch(&self, range: &str) -> Option<String> {
        let own: BTreeSet<String> = self.settings.subnets.iter().map(ToString::to_string).collect();
        let parts = range.split(',').map(str::trim).filter(|part| !part.is_empty());
        let wanted: BTreeSet<String> = parts
            .map(|part| {
                // Another notation of the same range is equal.
                part.parse::<Subnet>().map_or_else(|_| part.to_owned(), |subnet| subnet.to_string())
            })
            .collect();
        if wanted.is_empty() || wanted == own {
            return None;
        }
        let own: Vec<String> = own.into_iter().collect();
        Some(format!(
            "the pod CIDR {range} is ignored: pods on the built-in network have \
             addresses of {} (`network.subnets` of the runtime's settings)",
            own.join(", ")
        ))
    }

    /// Reserves addresses and a link name for a new pod.
    pub(super) fn reserve(&self, pod: &PodNetwork) -> Result<(String, Vec<String>)> {
        let ports = host_ports(pod)?;
        let mut members = self.members();
        check_free(&members.pods, &pod.sandbox, &ports)?;
        let taken: BTreeSet<IpAddr> =
            members.pods.values().flat_map(|member| member.addresses.iter().copied()).collect();
        let mut addresses = Vec::new();
        for subnet in &self.settings.subnets {
            let version = subnet.network.is_ipv4();
            let last = members.last.get(&version).copied();
            let address = subnet.next_free(last, &taken).ok_or_else(|| {
                CriError::new(
                    tonic::Code::ResourceExhausted,
                    format!("all addresses of {subnet} are taken by pods"),
                )
            })?;
            members.last.insert(version, address);
            addresses.push(address);
        }
        // The kernel limits names to fifteen characters.
        let link = format!("keel{}", pod.sandbox.get(..11).unwrap_or(&pod.sandbox));
        let texts = addresses.iter().map(ToString::to_string).collect();
        let member = NetworkMember { addresses, ports, link: link.clone() };
        members.pods.insert(pod.sandbox.clone(), member);
        if let Err(failure) = self.claim_ports(&members) {
            members.pods.remove(&pod.sandbox);
            return Err(failure);
        }
        Ok((link, texts))
    }

    /// Frees a reservation that was never used.
    pub(super) fn release(&self, sandbox: &str) {
        let mut members = self.members();
        members.pods.remove(sandbox);
        self.release_ports(&members);
    }

    /// Claims the members' host ports for this root; an error if another root has one of them.
    fn claim_ports(&self, members: &NetworkMembers) -> Result<()> {
        let Some(claim) = &self.claim else { return Ok(()) };
        let ports = members.pods.values().flat_map(|pod| &pod.ports).map(HostPort::claimed);
        claim.set_ports(ports.collect()).map_err(|error| CriError::plain(error.to_string()))
    }

    /// After a pod was removed. On failure, ports stay claimed until the next change, and other
    /// roots cannot use them.
    fn release_ports(&self, members: &NetworkMembers) {
        if let Err(failure) = self.claim_ports(members) {
            tracing::warn!(%failure, "host ports stay claimed");
        }
    }

    pub(super) fn add(
        &self,
        pod: &PodNetwork,
        record: &NetworkRecord,
        namespace: BorrowedFd<'_>,
    ) -> Result<()> {
        let members = self.members();
        let member = members.pods.get(&pod.sandbox).cloned().ok_or_else(|| {
            CriError::plain(format!("sandbox {} has no reserved address", pod.sandbox))
        })?;
        let mut routes = NetlinkSocket::routes()?;
        let bridge = self.ensure_bridge(&mut routes)?;
        let alias = ownership::pod_alias(&pod.sandbox, &self.owner);
        routes.add_pair(VethPair {
            name: &record.link,
            alias: &alias,
            peer: INSIDE,
            peer_netns: namespace,
            mtu: self.settings.mtu,
        })?;
        let port = routes.link(&record.link)?;
        link_settings::harden_port(&record.link)?;
        routes.join_bridge(port.index, bridge)?;
        routes.set_up(port.index)?;
        let sysctls = pod.config.linux.as_ref().map(|linux| linux.sysctls.clone());
        netlink::in_namespace(namespace, || {
            let mut inside = NetlinkSocket::routes()?;
            let link = inside.link(INSIDE)?;
            link_settings::harden_inside(&sysctls.unwrap_or_default(), self.has_ipv6())?;
            inside.set_up(link.index)?;
            for (address, subnet) in member.addresses.iter().zip(&self.settings.subnets) {
                inside.add_address(link.index, *address, subnet.prefix)?;
                inside.add_default_route(link.index, subnet.gateway())?;
            }
            Ok(())
        })?;
        self.write_rules(&members)?;
        forget_datagrams(&member.ports);
        Ok(())
    }

    pub(super) fn remove(&self, pod: &PodNetwork, record: &NetworkRecord) -> Result<()> {
        let mut members = self.members();
        let mut routes = NetlinkSocket::routes()?;
        if !record.link.is_empty() {
            routes.remove_link(&record.link)?;
        }
        let removed = members.pods.remove(&pod.sandbox);
        self.write_rules(&members)?;
        forget_datagrams(&removed.map(|member| member.ports).unwrap_or_default());
        self.release_ports(&members);
        Ok(())
    }

    /// At startup: these pods are the members.
    pub(super) fn adopt_members(&self, pods: &[(PodNetwork, NetworkRecord)]) {
        let mut members = self.members();
        for (pod, record) in pods {
            if record.kind() != NetworkKind::BuiltIn || record.closed {
                continue;
            }
            let addresses = record.addresses.iter().filter_map(|text| text.parse().ok()).collect();
            let ports = host_ports(pod).unwrap_or_default();
            let member = NetworkMember { addresses, ports, link: record.link.clone() };
            members.pods.insert(pod.sandbox.clone(), member);
        }
        self.release_ports(&members);
    }

    /// At startup, once the members are known: removes links and rules of unknown pods.
    pub(super) fn remove_leftovers(&self) -> Result<()> {
        let members = self.members();
        let links: BTreeSet<&str> = members.pods.values().map(|pod| pod.link.as_str()).collect();
        let mut routes = NetlinkSocket::routes()?;
        let Some(bridge) = routes.find_link(&self.settings.bridge)? else {
            return self.write_rules(&members);
        };
        if let LinkOwner::Root(owner) = self.owner_of(&bridge) {
            if members.pods.is_empty() {
                return Ok(());
            }
            return Err(self.owned_by_another(owner));
        }
        for link in routes.links()? {
            let ours = link.kind == Some(LinkKind::Pair)
                && link.master == Some(bridge.index)
                && ownership::of_pod(&link.alias, &self.owner) == LinkOwner::ThisRoot;
            if ours && links.contains(link.name.as_str()) {
                link_settings::harden_port(&link.name)?;
            } else if ours {
                routes.remove_link(&link.name)?;
            }
        }
        if !members.pods.is_empty() {
            // A bridge that an older version created.
            link_settings::harden_bridge(&bridge.name, self.has_ipv6())?;
        }
        self.write_rules(&members)
    }

    fn ensure_bridge(&self, routes: &mut NetlinkSocket) -> Result<u32> {
        let name = &self.settings.bridge;
        if routes.find_link(name)?.is_none() {
            routes.add_bridge(name, &ownership::bridge_alias(&self.owner))?;
        }
        let bridge = routes.link(name)?;
        if let LinkOwner::Root(owner) = self.owner_of(&bridge) {
            return Err(self.owned_by_another(owner));
        }
        if bridge.kind != Some(LinkKind::Bridge) {
            return Err(CriError::plain(format!("link {name} is there and is no bridge")));
        }
        link_settings::harden_bridge(name, self.has_ipv6())?;
        for subnet in &self.settings.subnets {
            routes.add_address(bridge.index, subnet.gateway(), subnet.prefix)?;
        }
        routes.set_up(bridge.index)?;
        if self.settings.subnets.iter().any(|subnet| subnet.network.is_ipv4()) {
            enable_sysctl("ipv4/ip_forward")?;
        }
        if self.has_ipv6() {
            enable_sysctl("ipv6/conf/all/forwarding")?;
        }
        Ok(bridge.index)
    }

    fn owner_of<'a>(&self, bridge: &'a Link) -> LinkOwner<'a> {
        ownership::of_bridge(&bridge.name, &bridge.alias, &self.owner)
    }

    fn owned_by_another(&self, owner: &str) -> CriError {
        let bridge = &self.settings.bridge;
        CriError::plain(format!(
            "the bridge {bridge} belongs to the root whose names.json has the id {owner:?}; choose \
             another with `network.bridge` of the runtime's settings, or, where that root is gone, \
             remove it: ip link delete {bridge}"
        ))
    }

    /// Removes the bridge if a root created it. False: it belongs to another root, and so do its
    /// rules.
    fn remove_bridge(&self) -> Result<bool> {
        let mut routes = NetlinkSocket::routes()?;
        let Some(bridge) = routes.find_link(&self.settings.bridge)? else { return Ok(true) };
        match self.owner_of(&bridge) {
            LinkOwner::ThisRoot => routes.remove_link(&bridge.name)?,
            LinkOwner::Root(_) => return Ok(false),
            LinkOwner::NoRoot => {}
        }
        Ok(true)
    }

    /// Replaces the kernel's rules by those for the pods in memory.
    fn write_rules(&self, members: &NetworkMembers) -> Result<()> {
        if members.pods.is_empty() {
            if !self.remove_bridge()? {
                return Ok(());
            }
            let removed = (self.firewall)().and_then(|mut it| it.remove_table(&self.table()));
            return match removed {
                // A kernel without nftables has no rules of ours, and pods must be removable.
                Err(error) if self.readiness().is_err() => {
                    tracing::warn!(%error, "no nftables; a network of CNI's and the host's work");
                    Ok(())
                }
                other => Ok(other?),
            };
        }
        let mut firewall = (self.firewall)()?;
        let rules: Ruleset =
            rules::of(&self.settings.bridge, &self.settings.subnets, members.pods.values());
        firewall.replace_table(&self.table(), &rules)?;
        self.open_loopback(members)
    }

    /// Lets 127.0.0.1:port of the host lead to a pod, only while a pod has such a port. The same
    /// setting would let pods reach the host's loopback: the guard chain, which prevents that, is
    /// in place before.
    fn open_loopback(&self, members: &NetworkMembers) -> Result<()> {
        let is_used = members.pods.values().any(NetworkMember::has_loopback_port);
        let setting = format!("ipv4/conf/{}/route_localnet", self.settings.bridge);
        let path = Path::new("/proc/sys/net").join(&setting);
        match fs::read_to_string(&path) {
            Ok(_) if is_used => enable_sysctl(&setting),
            Ok(value) if value.trim() != "0" => fs::write(&path, "0").map_err(|error| {
                CriError::plain(format!("writing 0 to {}: {error}", path.display()))
            }),
            // Without a bridge there is nothing to set. After a reboot there is none, whatever
            // ports there were: the next pod creates it.
            _ => Ok(()),
        }
    }
}

/// Two pods cannot have the same port of the same address.
fn check_free(pods: &BTreeMap<String, NetworkMember>, own: &str, ports: &[HostPort]) -> Result<()> {
    let overlap = |one: &HostPort, other: &HostPort| {
        one.transport == other.transport
            && one.host_port == other.host_port
            && (one.host_address.is_none()
                || other.host_address.is_none()
                || one.host_address == other.host_address)
    };
    for (id, member) in pods.iter().filter(|(id, _)| *id != own) {
        for port in ports {
            if member.ports.iter().any(|taken| overlap(taken, port)) {
                return Err(CriError::plain(format!(
                    "host port {} is taken by sandbox {id}",
                    port.host_port
                )));
            }
        }
    }
    Ok(())
}

pub(crate) fn host_ports(pod: &PodNetwork) -> Result<Vec<HostPort>> {
    let number = |what: &str, port: i32| {
        u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
            CriError::invalid(format!("{what} {port} is no port; expected 1 to 65535"))
        })
    };
    pod.host_ports()
        .map(|mapping| {
            let host_address = match mapping.host_ip.as_str() {
                "" | "0.0.0.0" | "::" => None,
                text => {
                    let address: IpAddr = text.parse().map_err(|_| {
                        CriError::invalid(format!("host_ip {text:?} is no address"))
                    })?;
                    // An IPv4 address may be written as an IPv6 one.
                    Some(address.to_canonical())
                }
            };
            Ok(HostPort {
                transport: match mapping.protocol() {
                    cri_wire::v1::Protocol::Tcp => netlink::IpTransport::Tcp,
                    cri_wire::v1::Protocol::Udp => netlink::IpTransport::Udp,
                    cri_wire::v1::Protocol::Sctp => netlink::IpTransport::Sctp,
                },
                host_port: number("host_port", mapping.host_port)?,
                container_port: number("container_port", mapping.container_port)?,
                host_address,
            })
        })
        .collect()
}

fn enable_sysctl(setting: &str) -> Result<()> {
    let path = Path::new("/proc/sys/net").join(setting);
    if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1") {
        return Ok(());
    }
    fs::write(&path, "1")
        .map_err(|error| CriError::plain(format!("writing 1 to {}: {error}", path.display())))
}
