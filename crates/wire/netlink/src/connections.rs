//! Connections that the kernel tracks (conntrack), and deleting some.
//!
//! A datagram of a tracked connection goes where the first one went, whatever the rules are now: a
//! port's new owner has to have the old entries deleted.
//!
//! upstream: the kernel's nfnetlink_conntrack.h

use std::net::IpAddr;

use rustix::io::Errno;

use crate::message::{NetlinkWriter, attributes};
use crate::socket::{NetlinkError, NetlinkSocket, Result};

const SUBSYSTEM: u16 = 1 << 8;
const NEW: u16 = 0;
const GET: u16 = 1;
const DELETE: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const ORIGINAL: u16 = 1;
const ZONE: u16 = 18;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
const DESTINATION_V4: u16 = 2;
const DESTINATION_V6: u16 = 4;
const NUMBER: u16 = 1;
const DESTINATION_PORT: u16 = 3;
const UDP: u8 = 17;

impl NetlinkSocket {
    /// A socket for tracked connections of this thread's network namespace.
    pub fn connections() -> Result<Self> {
        Self::firewall()
    }

    /// Deletes the UDP connections whose first datagram went to a matching address and port.
    /// Returns how many there were.
    pub fn delete_udp_connections(
        &mut self,
        matches: impl Fn(IpAddr, u16) -> bool,
    ) -> Result<usize> {
        let operation = "listing tracked connections";
        let answers = self.request_payloads(operation, message(GET, REQUEST | DUMP, 0))?;
        let mut forgotten = 0;
        for (_, payload) in answers.iter().filter(|(kind, _)| *kind == SUBSYSTEM | NEW) {
            let unparsable =
                |cause| NetlinkError::Answer { operation: operation.to_owned(), cause };
            let parts = attributes(payload.get(4..).unwrap_or_default()).map_err(unparsable)?;
            let of = |attribute_kind| {
                parts.iter().find(|(kind, _)| *kind == attribute_kind).map(|part| part.1)
            };
            let Some(original) = of(ORIGINAL) else { continue };
            let Some((address, port)) = udp_destination(original).map_err(unparsable)? else {
                continue;
            };
            if !matches(address, port) {
                continue;
            }
            let family = payload.first().copied().unwrap_or_default();
            let mut delete = message(DELETE, REQUEST | ACKNOWLEDGE, family)
                .nested(ORIGINAL, |inside| inside.raw(original));
            if let Some(zone) = of(ZONE) {
                delete = delete.attribute(ZONE, zone);
            }
            match self.request("forgetting a tracked connection", delete) {
                Ok(()) => forgotten += 1,
                // It expired meanwhile.
                Err(error) if error.errno() == Some(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(forgotten)
    }
}

fn message(kind: u16, flags: u16, family: u8) -> NetlinkWriter {
    NetlinkWriter::new(SUBSYSTEM | kind, flags, &[family, 0, 0, 0])
}

/// The destination of a tuple's datagrams. `None` for another protocol.
fn udp_destination(tuple: &[u8]) -> Result<Option<(IpAddr, u16)>, crate::ParseError> {
    let parts = attributes(tuple)?;
    let within = |attribute_kind| {
        let part = parts.iter().find(|(kind, _)| *kind == attribute_kind);
        attributes(part.map_or(&[][..], |part| part.1))
    };
    let (mut address, mut number, mut port) = (None, None, None);
    for (kind, value) in within(ADDRESSES)? {
        match kind {
            DESTINATION_V4 => address = <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
            DESTINATION_V6 => address = <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
            _ => {}
        }
    }
    for (kind, value) in within(PROTOCOL)? {
        match kind {
            NUMBER => number = value.first().copied(),
            DESTINATION_PORT => port = value.try_into().ok().map(u16::from_be_bytes),
            _ => {}
        }
    }
    Ok(address.zip(port).filter(|_| number == Some(UDP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(number: u8) -> Vec<u8> {
        let whole = NetlinkWriter::new(0, 0, &[])
            .nested(ADDRESSES, |inside| {
                inside.attribute(1, &[10, 0, 0, 1]).attribute(DESTINATION_V4, &[10, 0, 0, 2])
            })
            .nested(PROTOCOL, |inside| {
                inside
                    .attribute(NUMBER, &[number])
                    .attribute(2, &7_u16.to_be_bytes())
                    .attribute(DESTINATION_PORT, &53_u16.to_be_bytes())
            })
            .finish(0);
        whole[crate::message::HEADER..].to_vec()
    }

    #[test]
    fn the_destination_is_read_from_a_conntrack_tuple() {
        let to = ("10.0.0.2".parse().unwrap(), 53);
        assert_eq!(udp_destination(&tuple(UDP)), Ok(Some(to)));
        assert_eq!(udp_destination(&tuple(6)), Ok(None));
        assert_eq!(udp_destination(&[]), Ok(None));
        let whole = tuple(UDP);
        for end in 1..whole.len() {
            // Truncated it is an error or nothing, never a panic.
            let _ = udp_destination(&whole[..end]);
        }
    }
}
