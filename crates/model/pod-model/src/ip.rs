//! IP addresses, networks, and the address lists that a kubelet takes.
//!
//! Reads what Go's parser of before 1.17 read, since stored configuration depends on it: leading
//! zeros are allowed and mean nothing (`010.0.0.1` is ten, not eight). An IPv6 address that wraps
//! an IPv4 one (`::ffff:10.0.0.1`) is that IPv4 address. Zones (`%eth0`) are refused. Resolves no
//! names and asks no interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// A text that is no address, network, or allowed list of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpError {
    /// Not an address.
    #[error(
        "{value:?} is not an IP address; expected IPv4 or IPv6 such as \"10.0.0.1\" or \"fd00::1\""
    )]
    Address {
        /// The text as it was given.
        value: String,
    },
    /// Not a network.
    #[error(
        "{value:?} is not a network; expected an address and a prefix length such as \"10.0.0.0/24\""
    )]
    Cidr {
        /// The text as it was given.
        value: String,
    },
    /// A node has one address, or one of each family.
    #[error("node addresses {value:?}: expected one address, or one IPv4 and one IPv6 address")]
    NotAPair {
        /// The text as it was given.
        value: String,
    },
    /// Two addresses where only one may be given.
    #[error("node addresses {value:?}: with this cloud provider only one address may be given")]
    DualStackRefused {
        /// The text as it was given.
        value: String,
    },
    /// The address "any" says nothing in a pair.
    #[error("node addresses {value:?}: neither of two addresses may be 0.0.0.0 or ::")]
    UnspecifiedInPair {
        /// The text as it was given.
        value: String,
    },
}

/// A network, and the address that named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The address as written, host bits included.
    pub address: IpAddr,
    /// The first address of the network.
    pub network: IpAddr,
    /// How many leading bits all its members share.
    pub prefix_length: u8,
}

/// A node's own addresses, from a flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// None, one, or one of each family.
    pub addresses: Vec<IpAddr>,
    /// Parts that are no addresses. A kubelet warns about them and starts.
    pub ignored: Vec<String>,
}

/// Reads one address.
pub fn parse_ip(text: &str) -> Result<IpAddr, IpError> {
    // Whichever of the two separators comes first decides the family.
    let address = match text.bytes().find(|byte| matches!(byte, b'.' | b':')) {
        Some(b'.') => parse_v4(text).map(IpAddr::V4),
        Some(_) => parse_v6(text).map(|address| IpAddr::V6(address).to_canonical()),
        None => None,
    };
    address.ok_or_else(|| IpError::Address { value: text.to_owned() })
}

/// Reads addresses between commas, with nothing else around them; the empty text is an empty list.
pub fn parse_ip_list(text: &str) -> Result<Vec<IpAddr>, IpError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(parse_ip).collect()
}

/// Reads one network.
pub fn parse_cidr(text: &str) -> Result<Cidr, IpError> {
    cidr(text).ok_or_else(|| IpError::Cidr { value: text.to_owned() })
}

/// Reads networks between commas; the empty text is an empty list.
pub fn parse_cidr_list(text: &str) -> Result<Vec<Cidr>, IpError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(parse_cidr).collect()
}

/// Reads a kubelet's `--node-ip`: spaces are ignored, parts that are no addresses are set aside,
/// and what remains must be at most a pair of two families.
pub fn parse_node_addresses(text: &str, allow_dual_stack: bool) -> Result<NodeAddresses, IpError> {
    let mut result = NodeAddresses::default();
    if text.is_empty() {
        return Ok(result);
    }
    for part in text.split(',').map(str::trim) {
        match parse_ip(part) {
            Ok(address) => result.addresses.push(address),
            Err(_) => result.ignored.push(part.to_owned()),
        }
    }
    let value = || text.to_owned();
    match result.addresses[..] {
        [] | [_] => Ok(result),
        [one, two] if one.is_ipv4() != two.is_ipv4() => {
            if !allow_dual_stack {
                return Err(IpError::DualStackRefused { value: value() });
            }
            if one.is_unspecified() || two.is_unspecified() {
                return Err(IpError::UnspecifiedInPair { value: value() });
            }
            Ok(result)
        }
        _ => Err(IpError::NotAPair { value: value() }),
    }
}

fn cidr(text: &str) -> Option<Cidr> {
    let (address, length) = text.split_once('/')?;
    let length = decimal(length)?;
    if let Some(address) = parse_v4(address) {
        return network_v4(address, u8::try_from(length).ok().filter(|length| *length <= 32)?);
    }
    let address = parse_v6(address)?;
    let prefix_length = u8::try_from(length).ok().filter(|length| *length <= 128)?;
    // Only when all its fixed bits lie in the IPv4 part is the network an IPv4 one.
    if let (Some(inner), Some(inner_length)) =
        (address.to_ipv4_mapped(), prefix_length.checked_sub(96))
    {
        return network_v4(inner, inner_length);
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix_length)).unwrap_or(0);
    let network = Ipv6Addr::from_bits(address.to_bits() & mask);
    Some(Cidr {
        address: IpAddr::V6(address).to_canonical(),
        network: IpAddr::V6(network),
        prefix_length,
    })
}

fn network_v4(address: Ipv4Addr, prefix_length: u8) -> Option<Cidr> {
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(u32::from(prefix_length))?).unwrap_or(0);
    let network = Ipv4Addr::from_bits(address.to_bits() & mask);
    Some(Cidr { address: IpAddr::V4(address), network: IpAddr::V4(network), prefix_length })
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(decimal(parts.next()?)?).ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    let (front, back) = match text.split_once("::") {
        Some((front, back)) => (front, Some(back)),
        None => (text, None),
    };
    let Some(back) = back else {
        let groups = groups_v6(front, true)?;
        return <[u16; 8]>::try_from(groups).ok().map(Ipv6Addr::from);
    };
    // The dotted form may only stand at the very end, so never before the gap.
    let front = if front.is_empty() { Vec::new() } else { groups_v6(front, false)? };
    let back = if back.is_empty() { Vec::new() } else { groups_v6(back, true)? };
    // The gap must stand for one group at least.
    let gap = 8_usize.checked_sub(front.len() + back.len()).filter(|gap| *gap >= 1)?;
    let groups: Vec<u16> = front.into_iter().chain(vec![0; gap]).chain(back).collect();
    <[u16; 8]>::try_from(groups).ok().map(Ipv6Addr::from)
}

/// Groups between colons; the last one may be a dotted IPv4 address, which makes two.
fn groups_v6(text: &str, dotted_end: bool) -> Option<Vec<u16>> {
    let mut groups = Vec::with_capacity(8);
    let mut parts = text.split(':').peekable();
    while let Some(part) = parts.next() {
        if groups.len() >= 8 {
            return None;
        }
        if dotted_end && parts.peek().is_none() && part.contains('.') {
            let [a, b, c, d] = parse_v4(part)?.octets();
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
        } else {
            groups.push(hexadecimal(part)?);
        }
    }
    Some(groups)
}

/// Digits only; leading zeros mean nothing.
fn decimal(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn hexadecimal(text: &str) -> Option<u16> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { u16::from_str_radix(text, 16).ok() } else { None }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.network, self.prefix_length)
    }
}
