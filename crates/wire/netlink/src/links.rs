//! Links: creating, finding, changing and removing them.
//!
//! upstream: rtnetlink(7), if_link.h

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

use crate::message::{NetlinkWriter, attributes, text, u16_at, u32_at};
use crate::socket::{NetlinkError, NetlinkSocket, Result};

const NEW: u16 = 16;
const DELETE: u16 = 17;
const GET: u16 = 18;
const SET: u16 = 19;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const ACKNOWLEDGE: u16 = 4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;
const UP: u32 = 1;
const FAMILY_BRIDGE: u8 = 7;

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const MASTER: u16 = 10;
const PORT: u16 = 12;
const INFORMATION: u16 = 18;
const ALIAS: u16 = 20;
const NAMESPACE: u16 = 28;
const KIND: u16 = 1;
const DATA: u16 = 2;
const PEER: u16 = 1;
const HAIRPIN: u16 = 4;
const MAX_LINK_NAME: usize = 15;

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// What it is for, set by its creator.
    pub alias: String,
    pub address: Vec<u8>,
    pub mtu: u32,
    pub up: bool,
    pub master: Option<u32>,
    pub kind: Option<LinkKind>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    Bridge,
    Pair,
    Other(String),
}

/// A veth pair to be created: one end here, its peer in another network namespace.
#[derive(Debug, Clone, Copy)]
pub struct VethPair<'a> {
    pub name: &'a str,
    /// The alias of the end that stays here.
    pub alias: &'a str,
    /// The peer's name, such as `eth0`.
    pub peer: &'a str,
    pub peer_netns: BorrowedFd<'a>,
    /// Of both ends; None: the kernel's default.
    pub mtu: Option<u32>,
}

/// The fixed header of link messages.
fn fixed(family: u8, index: u32, (flags, change): (u32, u32)) -> Vec<u8> {
    let mut bytes = vec![family, 0, 0, 0];
    bytes.extend_from_slice(&index.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&change.to_ne_bytes());
    bytes
}

const MAKE: u16 = REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE;
const CHANGE: u16 = REQUEST | ACKNOWLEDGE;

impl NetlinkSocket {
    /// Every link of this namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let operation = "listing links";
        let message = NetlinkWriter::new(GET, REQUEST | DUMP, &fixed(0, 0, (0, 0)));
        let answers = self.request_payloads(operation, message)?;
        answers.iter().filter(|(kind, _)| *kind == NEW).map(|(_, bytes)| read(bytes)).collect()
    }

    pub fn find_link(&mut self, name: &str) -> Result<Option<Link>> {
        check_name(name)?;
        let operation = format!("looking for link {name}");
        // With an acknowledgement asked for, the kernel reports the end of the answer.
        let message =
            NetlinkWriter::new(GET, REQUEST | ACKNOWLEDGE, &fixed(0, 0, (0, 0))).text(NAME, name);
        match self.request_payloads(&operation, message) {
            Ok(answers) => answers.first().map(|(_, payload)| read(payload)).transpose(),
            Err(error) if error.errno() == Some(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn link(&mut self, name: &str) -> Result<Link> {
        let operation = format!("looking for link {name}");
        self.find_link(name)?.ok_or(NetlinkError::Missing { operation })
    }

    pub fn add_bridge(&mut self, name: &str, alias: &str) -> Result<()> {
        check_name(name)?;
        let message = NetlinkWriter::new(NEW, MAKE, &fixed(0, 0, (0, 0)))
            .text(NAME, name)
            .nested(INFORMATION, |inside| inside.text(KIND, "bridge"));
        self.request(&format!("making bridge {name}"), message)?;
        let link = self.link(name)?;
        self.set_alias(link.index, alias)
    }

    pub fn add_pair(&mut self, pair: VethPair<'_>) -> Result<()> {
        let VethPair { name, alias, peer, peer_netns, mtu } = pair;
        check_name(name)?;
        check_name(peer)?;
        let descriptor = u32::try_from(peer_netns.as_raw_fd()).unwrap_or(u32::MAX);
        let with_mtu = |message: NetlinkWriter| match mtu {
            Some(mtu) => message.number(MTU, mtu),
            None => message,
        };
        let message = with_mtu(
            NetlinkWriter::new(NEW, MAKE, &fixed(0, 0, (0, 0))).text(NAME, name),
        )
        .nested(INFORMATION, |inside| {
            inside.text(KIND, "veth").nested(DATA, |inside| {
                inside.nested(PEER, |inside| {
                    let inside = inside.raw(&fixed(0, 0, (0, 0))).text(NAME, peer);
                    with_mtu(inside).number(NAMESPACE, descriptor)
                })
            })
        });
        self.request(&format!("making the pair of links {name} and {peer}"), message)?;
        let link = self.link(name)?;
        self.set_alias(link.index, alias)
    }

    fn set_alias(&mut self, index: u32, alias: &str) -> Result<()> {
        let message = NetlinkWriter::new(SET, CHANGE, &fixed(0, index, (0, 0)))
            .attribute(ALIAS, alias.as_bytes());
        self.request(&format!("describing link {index}"), message)
    }

    pub fn set_up(&mut self, index: u32) -> Result<()> {
        let message = NetlinkWriter::new(SET, CHANGE, &fixed(0, index, (UP, UP)));
        self.request(&format!("bringing link {index} up"), message)
    }

    /// Makes a link a port of a bridge, in hairpin mode.
    pub fn join_bridge(&mut self, index: u32, bridge: u32) -> Result<()> {
        let message =
            NetlinkWriter::new(SET, CHANGE, &fixed(0, index, (0, 0))).number(MASTER, bridge);
        self.request(&format!("joining link {index} to bridge {bridge}"), message)?;
        let message = NetlinkWriter::new(SET, CHANGE, &fixed(FAMILY_BRIDGE, index, (0, 0)))
            .nested(PORT, |inside| inside.attribute(HAIRPIN, &[1]));
        self.request(&format!("letting port {index} send back"), message)
    }

    /// Removes a link; one that does not exist is no error.
    pub fn remove_link(&mut self, name: &str) -> Result<()> {
        check_name(name)?;
        let message = NetlinkWriter::new(DELETE, CHANGE, &fixed(0, 0, (0, 0))).text(NAME, name);
        match self.request(&format!("removing link {name}"), message) {
            Err(error) if error.errno() == Some(Errno::NODEV) => Ok(()),
            other => other,
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let good = !name.is_empty()
        && name.len() <= MAX_LINK_NAME
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    if good {
        return Ok(());
    }
    Err(NetlinkError::Invalid {
        operation: format!("link {name:?}"),
        reason: "expected 1 to 15 letters without '/', ':' and spaces".to_owned(),
    })
}

fn read(bytes: &[u8]) -> Result<Link> {
    let unparsable = |cause| NetlinkError::Answer { operation: "reading a link".to_owned(), cause };
    let _kind = u16_at(bytes, 2).map_err(unparsable)?;
    let mut link = Link {
        index: u32_at(bytes, 4).map_err(unparsable)?,
        name: String::new(),
        alias: String::new(),
        address: Vec::new(),
        mtu: 0,
        up: u32_at(bytes, 8).map_err(unparsable)? & UP != 0,
        master: None,
        kind: None,
    };
    for (kind, value) in attributes(bytes.get(16..).unwrap_or_default()).map_err(unparsable)? {
        match kind {
            NAME => link.name = text(value),
            ALIAS => link.alias = text(value),
            ADDRESS => link.address = value.to_vec(),
            MTU => link.mtu = u32_at(value, 0).map_err(unparsable)?,
            MASTER => link.master = Some(u32_at(value, 0).map_err(unparsable)?),
            INFORMATION => {
                let inside = attributes(value).map_err(unparsable)?;
                let name =
                    inside.iter().find(|(kind, _)| *kind == KIND).map(|(_, name)| text(name));
                link.kind = name.map(|name| match name.as_str() {
                    "bridge" => LinkKind::Bridge,
                    "veth" => LinkKind::Pair,
                    _ => LinkKind::Other(name),
                });
            }
            _ => {}
        }
    }
    Ok(link)
}
