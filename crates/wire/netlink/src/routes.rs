//! Addresses of links, and routes.
//!
//! upstream: rtnetlink(7), if_addr.h

use std::net::IpAddr;

use rustix::io::Errno;

use crate::links::{ACKNOWLEDGE, CREATE, DUMP, EXCLUSIVE, REQUEST};
use crate::message::{NetlinkWriter, attributes, u32_at};
use crate::socket::{NetlinkError, NetlinkSocket, Result};

const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const DESTINATION: u16 = 1;
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;
const FLAGS: u16 = 8;
/// The pod's address is unique: duplicate address detection would delay it by a second.
const NO_DUPLICATE_DETECTION: u32 = 2;
const OUTPUT: u16 = 4;
const GATEWAY: u16 = 5;
const MAIN_TABLE: u8 = 254;
const STATIC: u8 = 4;
const UNICAST: u8 = 1;
const SCOPE_ALL: u8 = 0;

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 10,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl NetlinkSocket {
    /// Adds an address to a link; one that it has already is no error.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let mut fixed = vec![family(address), prefix, 0, SCOPE_ALL];
        fixed.extend_from_slice(&index.to_ne_bytes());
        let flags = REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE;
        let mut message = NetlinkWriter::new(NEW_ADDRESS, flags, &fixed)
            .attribute(LOCAL, &octets(address))
            .attribute(ADDRESS, &octets(address));
        if address.is_ipv6() {
            message = message.number(FLAGS, NO_DUPLICATE_DETECTION);
        }
        match self.request(&format!("giving link {index} the address {address}/{prefix}"), message)
        {
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    /// The addresses of all links, by link.
    pub fn addresses(&mut self) -> Result<Vec<(u32, IpAddr, u8)>> {
        let operation = "listing addresses";
        let message = NetlinkWriter::new(GET_ADDRESS, REQUEST | DUMP, &[0; 8]);
        let mut found = Vec::new();
        for (_, payload) in self.request_payloads(operation, message)? {
            let unparsable =
                |cause| NetlinkError::Answer { operation: operation.to_owned(), cause };
            let index = u32_at(&payload, 4).map_err(unparsable)?;
            let prefix = payload.get(1).copied().unwrap_or_default();
            let parts = attributes(payload.get(8..).unwrap_or_default()).map_err(unparsable)?;
            let of = |attribute_kind| {
                parts
                    .iter()
                    .find(|(kind, _)| *kind == attribute_kind)
                    .and_then(|(_, bytes)| read(bytes))
            };
            if let Some(address) = of(LOCAL).or_else(|| of(ADDRESS)) {
                found.push((index, address, prefix));
            }
        }
        Ok(found)
    }

    /// The destinations of all tables' routes, except default routes: the link (0 for none), the
    /// range's address and its prefix.
    pub fn route_destinations(&mut self) -> Result<Vec<(u32, IpAddr, u8)>> {
        let operation = "listing routes";
        let message = NetlinkWriter::new(GET_ROUTE, REQUEST | DUMP, &[0; 12]);
        let mut found = Vec::new();
        for (_, payload) in self.request_payloads(operation, message)? {
            let unparsable =
                |cause| NetlinkError::Answer { operation: operation.to_owned(), cause };
            let prefix = payload.get(1).copied().unwrap_or_default();
            let parts = attributes(payload.get(12..).unwrap_or_default()).map_err(unparsable)?;
            let of = |attribute_kind| {
                parts.iter().find(|(kind, _)| *kind == attribute_kind).map(|(_, it)| *it)
            };
            let link = of(OUTPUT).map(|bytes| u32_at(bytes, 0)).transpose().map_err(unparsable)?;
            if let Some(address) = of(DESTINATION).and_then(read).filter(|_| prefix > 0) {
                found.push((link.unwrap_or(0), address, prefix));
            }
        }
        Ok(found)
    }

    /// Sets the default route to `gateway`.
    pub fn add_default_route(&mut self, index: u32, gateway: IpAddr) -> Result<()> {
        let mut fixed = vec![family(gateway), 0, 0, 0, MAIN_TABLE, STATIC, SCOPE_ALL, UNICAST];
        fixed.extend_from_slice(&[0; 4]);
        let flags = REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE;
        let message = NetlinkWriter::new(NEW_ROUTE, flags, &fixed)
            .attribute(GATEWAY, &octets(gateway))
            .number(OUTPUT, index);
        match self.request(&format!("routing through {gateway}"), message) {
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(()),
            other => other,
        }
    }
}

fn read(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
