//! Matches and actions as nftables expressions.
//!
//! upstream: the kernel's nf_tables.h

use std::net::IpAddr;

use super::{IpFamily, IpTransport, RuleCondition, RuleVerdict};
use crate::message::NetlinkWriter;

const REGISTER_1: u32 = 1;
const REGISTER_2: u32 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
/// Keys of packet metadata.
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Length of link names as the kernel compares them.
const LINK_NAME: usize = 16;
const CT_STATUS: u32 = 2;
const CT_STATUS_DST_NAT: u32 = 1 << 5;
const ADDRESS_TYPE: u32 = 3;
const FIB_DESTINATION: u32 = 2;
const TYPE_LOCAL: u32 = 2;

pub(super) fn condition(writer: NetlinkWriter, condition: &RuleCondition) -> NetlinkWriter {
    match condition {
        RuleCondition::Family(family) => of_family(writer, *family),
        RuleCondition::SourceNetwork { network, prefix, equal } => {
            address(writer, (*network, *prefix), AddressSide::Source, *equal)
        }
        RuleCondition::DestinationNetwork { network, prefix, equal } => {
            address(writer, (*network, *prefix), AddressSide::Destination, *equal)
        }
        RuleCondition::LocalDestination => {
            let writer = expression(writer, "fib", |data| {
                data.network_number(1, REGISTER_1)
                    .network_number(2, ADDRESS_TYPE)
                    .network_number(3, FIB_DESTINATION)
            });
            compare(writer, EQUAL, &TYPE_LOCAL.to_ne_bytes())
        }
        RuleCondition::Port { transport, port } => {
            let number = match transport {
                IpTransport::Tcp => 6,
                IpTransport::Udp => 17,
                IpTransport::Sctp => 132,
            };
            let writer = compare(load_meta(writer, META_L4PROTO), EQUAL, &[number]);
            compare(payload(writer, TRANSPORT_HEADER, 2, 2), EQUAL, &port.to_be_bytes())
        }
        RuleCondition::InputInterface { link } => {
            compare(load_meta(writer, META_IIFNAME), EQUAL, &link_name(link))
        }
        RuleCondition::OutputInterface { link, equal } => {
            let operator = if *equal { EQUAL } else { NOT_EQUAL };
            compare(load_meta(writer, META_OIFNAME), operator, &link_name(link))
        }
        RuleCondition::DestinationNatted => {
            let writer = expression(writer, "ct", |data| {
                data.network_number(1, REGISTER_1).network_number(2, CT_STATUS)
            });
            let writer = mask(writer, &CT_STATUS_DST_NAT.to_ne_bytes());
            compare(writer, NOT_EQUAL, &[0; 4])
        }
    }
}

pub(super) fn verdict(writer: NetlinkWriter, effect: &RuleVerdict) -> NetlinkWriter {
    match effect {
        RuleVerdict::Drop => expression(writer, "immediate", |data| {
            // Register 0 is the verdict's.
            data.network_number(1, 0)
                .nested(2, |data| data.nested(2, |verdict| verdict.network_number(1, 0)))
        }),
        RuleVerdict::Masquerade => expression(writer, "masq", |data| data),
        RuleVerdict::DestinationNat { address, port } => {
            let (bytes, family) = match address {
                IpAddr::V4(address) => (address.octets().to_vec(), 2),
                IpAddr::V6(address) => (address.octets().to_vec(), 10),
            };
            let writer = load(writer, REGISTER_1, &bytes);
            let writer = load(writer, REGISTER_2, &port.to_be_bytes());
            expression(writer, "nat", |data| {
                data.network_number(1, 1)
                    .network_number(2, family)
                    .network_number(3, REGISTER_1)
                    .network_number(5, REGISTER_2)
            })
        }
    }
}

fn expression(
    writer: NetlinkWriter,
    name: &str,
    data: impl FnOnce(NetlinkWriter) -> NetlinkWriter,
) -> NetlinkWriter {
    writer.nested(1, |inside| inside.text(1, name).nested(2, data))
}

/// Loads packet metadata into the first register.
fn load_meta(writer: NetlinkWriter, key: u32) -> NetlinkWriter {
    expression(writer, "meta", |data| data.network_number(1, REGISTER_1).network_number(2, key))
}

/// Loads a part of a header into the first register.
fn payload(writer: NetlinkWriter, base: u32, offset: u32, length: u32) -> NetlinkWriter {
    expression(writer, "payload", |data| {
        data.network_number(1, REGISTER_1)
            .network_number(2, base)
            .network_number(3, offset)
            .network_number(4, length)
    })
}

fn compare(writer: NetlinkWriter, operator: u32, value: &[u8]) -> NetlinkWriter {
    expression(writer, "cmp", |data| {
        data.network_number(1, REGISTER_1)
            .network_number(2, operator)
            .nested(3, |data| data.attribute(1, value))
    })
}

fn mask(writer: NetlinkWriter, bits: &[u8]) -> NetlinkWriter {
    let length = u32::try_from(bits.len()).unwrap_or(0);
    let zeros = vec![0; bits.len()];
    expression(writer, "bitwise", |data| {
        data.network_number(1, REGISTER_1)
            .network_number(2, REGISTER_1)
            .network_number(3, length)
            .nested(4, |data| data.attribute(1, bits))
            .nested(5, |data| data.attribute(1, &zeros))
    })
}

fn load(writer: NetlinkWriter, register: u32, value: &[u8]) -> NetlinkWriter {
    expression(writer, "immediate", |data| {
        data.network_number(1, register).nested(2, |data| data.attribute(1, value))
    })
}

fn of_family(writer: NetlinkWriter, family: IpFamily) -> NetlinkWriter {
    let number = match family {
        IpFamily::V4 => 2,
        IpFamily::V6 => 10,
    };
    compare(load_meta(writer, META_NFPROTO), EQUAL, &[number])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressSide {
    Source,
    Destination,
}

fn address(
    writer: NetlinkWriter,
    (network, prefix): (IpAddr, u8),
    side: AddressSide,
    equal: bool,
) -> NetlinkWriter {
    let writer = of_family(writer, IpFamily::of(network));
    let (bytes, offsets) = match network {
        IpAddr::V4(address) => (address.octets().to_vec(), (12, 16)),
        IpAddr::V6(address) => (address.octets().to_vec(), (8, 24)),
    };
    let offset = if side == AddressSide::Source { offsets.0 } else { offsets.1 };
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    let bits = prefix_mask(bytes.len(), prefix);
    let masked: Vec<u8> = bytes.iter().zip(&bits).map(|(byte, bit)| byte & bit).collect();
    let writer = mask(payload(writer, NETWORK_HEADER, offset, length), &bits);
    compare(writer, if equal { EQUAL } else { NOT_EQUAL }, &masked)
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
