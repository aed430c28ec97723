//! The names of the machine that one root claims, as its claim file has them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The names of a root. What is empty is not claimed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimedResources {
    /// Canonical.
    pub root: PathBuf,
    /// The id that the root's names are derived from.
    pub id: String,
    pub pid: u32,
    /// Canonical. While it contains pods the claim is in force without its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Below these the root's agent creates and removes the cgroups of pods.
    pub cgroups: Vec<String>,
    /// Likewise directories, such as that of the pods' logs.
    pub directories: Vec<PathBuf>,
    /// The network namespace of bridge, subnets and ports.
    pub network_namespace: String,
    pub bridge: String,
    pub subnets: Vec<AddressRange>,
    pub ports: Vec<ClaimedPort>,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    pub network: IpAddr,
    pub prefix: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimedPortProtocol {
    Tcp,
    Udp,
    Sctp,
}

/// A host port that is forwarded to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedPort {
    pub transport: ClaimedPortProtocol,
    pub number: u16,
    /// `None` for every address of the machine.
    pub address: Option<IpAddr>,
}

impl ClaimedResources {
    /// Whether it has pods on the machine.
    pub(crate) fn has_pods(&self) -> bool {
        self.state.as_deref().is_some_and(has_pods)
    }

    pub(crate) fn only_ports(&self) -> Self {
        let (root, id) = (self.root.clone(), self.id.clone());
        Self { root, id, network_namespace: self.network_namespace.clone(), ..Self::default() }
    }
}

/// Whether a state directory has pods. One that cannot be listed counts as having some.
pub(crate) fn has_pods(state: &Path) -> bool {
    match std::fs::read_dir(state.join("pods")) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

impl AddressRange {
    pub fn overlaps(&self, other: &Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        match (self.network, other.network) {
            (IpAddr::V4(one), IpAddr::V4(two)) => {
                let bits = 32_u32.saturating_sub(prefix.into());
                (one.to_bits() ^ two.to_bits()).checked_shr(bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(one), IpAddr::V6(two)) => {
                let bits = 128_u32.saturating_sub(prefix.into());
                (one.to_bits() ^ two.to_bits()).checked_shr(bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl ClaimedPort {
    pub fn overlaps(&self, other: &Self) -> bool {
        self.transport == other.transport
            && self.number == other.number
            && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}
