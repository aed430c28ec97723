//! Matches and actions as nftables expressions.
//!
//! upstream: the kernel's nf_tables.h

use std::net::IpAddr;

use super::{Condition, Effect, Family, Transport};
use crate::message::Writer;

const FIRST: u32 = 1;
const SECOND: u32 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
/// Keys of packet metadata.
const CAME_BY: u32 = 6;
const LEAVES_BY: u32 = 7;
const PROTOCOL_FAMILY: u32 = 15;
const TRANSPORT: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Length of link names as the kernel compares them.
const LINK_NAME: usize = 16;
const TRACKED_STATUS: u32 = 2;
const STATUS_FORWARDED: u32 = 1 << 5;
const ADDRESS_TYPE: u32 = 3;
const OF_DESTINATION: u32 = 2;
const TYPE_LOCAL: u32 = 2;

pub(super) fn condition(writer: Writer, condition: &Condition) -> Writer {
    match condition {
        Condition::Family(family) => of_family(writer, *family),
        Condition::From { network, prefix, is } => {
            address(writer, (*network, *prefix), Side::Source, *is)
        }
        Condition::To { network, prefix, is } => {
            address(writer, (*network, *prefix), Side::Destination, *is)
        }
        Condition::ToThisMachine => {
            let writer = expression(writer, "fib", |data| {
                data.network_number(1, FIRST)
                    .network_number(2, ADDRESS_TYPE)
                    .network_number(3, OF_DESTINATION)
            });
            compare(writer, EQUAL, &TYPE_LOCAL.to_ne_bytes())
        }
        Condition::Port { transport, port } => {
            let number = match transport {
                Transport::Tcp => 6,
                Transport::Udp => 17,
                Transport::Sctp => 132,
            };
            let writer = compare(fact(writer, TRANSPORT), EQUAL, &[number]);
            compare(payload(writer, TRANSPORT_HEADER, 2, 2), EQUAL, &port.to_be_bytes())
        }
        Condition::CameBy { link } => compare(fact(writer, CAME_BY), EQUAL, &link_name(link)),
        Condition::LeavesBy { link, is } => {
            let operator = if *is { EQUAL } else { NOT_EQUAL };
            compare(fact(writer, LEAVES_BY), operator, &link_name(link))
        }
        Condition::WasForwarded => {
            let writer = expression(writer, "ct", |data| {
                data.network_number(1, FIRST).network_number(2, TRACKED_STATUS)
            });
            let writer = mask(writer, &STATUS_FORWARDED.to_ne_bytes());
            compare(writer, NOT_EQUAL, &[0; 4])
        }
    }
}

pub(super) fn effect(writer: Writer, effect: &Effect) -> Writer {
    match effect {
        Effect::Drop => expression(writer, "immediate", |data| {
            // Register 0 is the verdict's.
            data.network_number(1, 0)
                .nested(2, |data| data.nested(2, |verdict| verdict.network_number(1, 0)))
        }),
        Effect::Masquerade => expression(writer, "masq", |data| data),
        Effect::ForwardTo { address, port } => {
            let (bytes, family) = match address {
                IpAddr::V4(address) => (address.octets().to_vec(), 2),
                IpAddr::V6(address) => (address.octets().to_vec(), 10),
            };
            let writer = load(writer, FIRST, &bytes);
            let writer = load(writer, SECOND, &port.to_be_bytes());
            expression(writer, "nat", |data| {
                data.network_number(1, 1)
                    .network_number(2, family)
                    .network_number(3, FIRST)
                    .network_number(5, SECOND)
            })
        }
    }
}

fn expression(writer: Writer, name: &str, data: impl FnOnce(Writer) -> Writer) -> Writer {
    writer.nested(1, |inside| inside.text(1, name).nested(2, data))
}

/// Loads packet metadata into the first register.
fn fact(writer: Writer, key: u32) -> Writer {
    expression(writer, "meta", |data| data.network_number(1, FIRST).network_number(2, key))
}

/// Loads a part of a header into the first register.
fn payload(writer: Writer, base: u32, offset: u32, length: u32) -> Writer {
    expression(writer, "payload", |data| {
        data.network_number(1, FIRST)
            .network_number(2, base)
            .network_number(3, offset)
            .network_number(4, length)
    })
}

fn compare(writer: Writer, operator: u32, value: &[u8]) -> Writer {
    expression(writer, "cmp", |data| {
        data.network_number(1, FIRST)
            .network_number(2, operator)
            .nested(3, |data| data.attribute(1, value))
    })
}

fn mask(writer: Writer, bits: &[u8]) -> Writer {
    let length = u32::try_from(bits.len()).unwrap_or(0);
    let zeros = vec![0; bits.len()];
    expression(writer, "bitwise", |data| {
        data.network_number(1, FIRST)
            .network_number(2, FIRST)
            .network_number(3, length)
            .nested(4, |data| data.attribute(1, bits))
            .nested(5, |data| data.attribute(1, &zeros))
    })
}

fn load(writer: Writer, register: u32, value: &[u8]) -> Writer {
    expression(writer, "immediate", |data| {
        data.network_number(1, register).nested(2, |data| data.attribute(1, value))
    })
}

fn of_family(writer: Writer, family: Family) -> Writer {
    let number = match family {
        Family::V4 => 2,
        Family::V6 => 10,
    };
    compare(fact(writer, PROTOCOL_FAMILY), EQUAL, &[number])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

fn address(writer: Writer, (network, prefix): (IpAddr, u8), side: Side, is: bool) -> Writer {
    let writer = of_family(writer, Family::of(network));
    let (bytes, offsets) = match network {
        IpAddr::V4(address) => (address.octets().to_vec(), (12, 16)),
        IpAddr::V6(address) => (address.octets().to_vec(), (8, 24)),
    };
    let offset = if side == Side::Source { offsets.0 } else { offsets.1 };
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    let bits = prefix_mask(bytes.len(), prefix);
    let masked: Vec<u8> = bytes.iter().zip(&bits).map(|(byte, bit)| byte & bit).collect();
    let writer = mask(payload(writer, NETWORK_HEADER, offset, length), &bits);
    compare(writer, if is { EQUAL } else { NOT_EQUAL }, &masked)
}

pub(super) fn prefix_mask(length: usize, prefix: u8) -> Vec<u8> {
    (0..length)
        .map(|at| {
            let bits = usize::from(prefix).saturating_sub(at * 8).min(8);
            u8::try_from(0xff00_u32 >> bits & 0xff).unwrap_or(0)
        })
        .collect()
}

fn link_name(name: &str) -> [u8; LINK_NAME] {
    let mut bytes = [0; LINK_NAME];
    // A longer name was rejected when the link was created; the last byte stays zero.
    for (at, byte) in name.bytes().take(LINK_NAME - 1).enumerate() {
        bytes[at] = byte;
    }
    bytes
}
