//! Chooses the address of a new pod. Pure: the records are the allocation.
//!
//! Addresses are used round robin, so that a freed one is not reused at once and no client reaches
//! the wrong pod.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

#[cfg(test)]
mod tests;

/// A range of addresses that begins at a multiple of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    pub network: IpAddr,
    pub prefix: u8,
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no range of addresses; expected one like 10.88.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let (bits, most) = if address.is_ipv4() { (32, 30) } else { (128, 126) };
        if prefix > most {
            return Err(format!(
                "{text:?} has no room for pods; expected a prefix of {most} or less"
            ));
        }
        let subnet = Self { network: address, prefix };
        let network = subnet.at(0);
        let _ = bits;
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}

impl Subnet {
    fn size(&self) -> u128 {
        let bits = if self.network.is_ipv4() { 32 } else { 128 };
        1 << (bits - u32::from(self.prefix)).min(127)
    }

    /// The address at this index of the range.
    fn at(&self, place: u128) -> IpAddr {
        let mask = !(self.size() - 1);
        match self.network {
            IpAddr::V4(network) => {
                let bits = u128::from(network.to_bits()) & mask | place;
                Ipv4Addr::from_bits(u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(0)).into()
            }
            IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits() & mask | place).into(),
        }
    }

    /// The bridge's own address.
    pub fn gateway(&self) -> IpAddr {
        self.at(1)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        if address.is_ipv4() != self.network.is_ipv4() {
            return false;
        }
        Self { network: address, prefix: self.prefix }.at(0) == self.at(0)
    }

    /// The first free address after `last`, wrapping around. None if all are taken.
    pub fn next_free(&self, last: Option<IpAddr>, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        // Excludes the network, gateway and broadcast addresses.
        let (first, end) = (2, self.size() - 1);
        let after = last.filter(|last| self.contains(*last)).map_or(first, |last| {
            let place = match last {
                IpAddr::V4(last) => u128::from(last.to_bits()),
                IpAddr::V6(last) => last.to_bits(),
            };
            (place & (self.size() - 1)) + 1
        });
        // At most one more than are taken have to be tried.
        let tries = u128::try_from(taken.len()).unwrap_or(u128::MAX).saturating_add(1);
        let count = end.saturating_sub(first);
        (0..tries.min(count))
            .map(|step| first + (after.max(first) - first + step) % count)
            .map(|place| self.at(place))
            .find(|address| !taken.contains(address))
    }
}
