//! One nftables table, replaced as a whole.
//!
//! Rule: a [`Ruleset`] is the table's whole content; the kernel swaps it in one transaction, so it
//! is never half applied and nothing of an older one stays. Registers: an expression loads into the
//! first, the next compares it; no rule needs more than three.
//!
//! upstream: the kernel's nf_tables.h

use std::net::IpAddr;

use rustix::io::Errno;

use crate::message::NetlinkWriter;
use crate::socket::{NetlinkError, NetlinkSocket, Result};

mod expressions;
#[cfg(test)]
mod tests;

const SUBSYSTEM: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = 0;
const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// A table for both IPv4 and IPv6.
const INET: u8 = 1;

/// The content of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruleset {
    pub chains: Vec<FirewallChain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallChain {
    pub name: String,
    pub hook: NetfilterHook,
    /// Lower comes first.
    pub priority: i32,
    /// Whether it may translate addresses (NAT).
    pub translates: bool,
    pub rules: Vec<FirewallRule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetfilterHook {
    Prerouting,
    Output,
    Postrouting,
}

impl NetfilterHook {
    fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallRule {
    pub conditions: Vec<RuleCondition>,
    pub verdict: RuleVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpTransport {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleCondition {
    Family(IpFamily),
    SourceNetwork {
        network: IpAddr,
        prefix: u8,
        equal: bool,
    },
    DestinationNetwork {
        network: IpAddr,
        prefix: u8,
        equal: bool,
    },
    /// The destination is an address of this machine.
    LocalDestination,
    Port {
        transport: IpTransport,
        port: u16,
    },
    InputInterface {
        link: String,
    },
    OutputInterface {
        link: String,
        equal: bool,
    },
    /// The destination was translated before (DNAT).
    DestinationNatted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleVerdict {
    Drop,
    /// Translates the destination to another address and port (DNAT).
    DestinationNat {
        address: IpAddr,
        port: u16,
    },
    /// Translates the source to the address of the outgoing link.
    Masquerade,
}

/// The fixed header of nftables messages.
fn fixed(family: u8, resource: u16) -> [u8; 4] {
    let resource = resource.to_be_bytes();
    [family, 0, resource[0], resource[1]]
}

impl NetlinkSocket {
    /// Makes `table` contain exactly this.
    pub fn replace_table(&mut self, table: &str, rules: &Ruleset) -> Result<()> {
        let mut parts = vec![batch(BATCH_BEGIN)];
        // Created first, so that removing it cannot fail.
        parts.push(new_table(table));
        parts.push(message(DELETE_TABLE, 0).text(1, table));
        parts.push(new_table(table));
        for chain in &rules.chains {
            parts.push(new_chain(table, chain));
            parts.extend(chain.rules.iter().map(|rule| new_rule(table, &chain.name, rule)));
        }
        self.commit(&format!("replacing the firewall table {table}"), parts)
    }

    /// Removes a table; one that does not exist is no error.
    pub fn remove_table(&mut self, table: &str) -> Result<()> {
        let parts =
            vec![batch(BATCH_BEGIN), new_table(table), message(DELETE_TABLE, 0).text(1, table)];
        match self.commit(&format!("removing the firewall table {table}"), parts) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Whether the table exists.
    pub fn has_table(&mut self, table: &str) -> Result<bool> {
        let message =
            NetlinkWriter::new(SUBSYSTEM | GET_TABLE, REQUEST | ACKNOWLEDGE, &fixed(INET, 0))
                .text(1, table);
        match self.request_payloads(&format!("looking for the firewall table {table}"), message) {
            Ok(_) => Ok(true),
            Err(NetlinkError::Refused { cause: Errno::NOENT, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn commit(&mut self, operation: &str, mut parts: Vec<NetlinkWriter>) -> Result<()> {
        // The last message of the transaction asks for an acknowledgement, which comes after the
        // commit.
        if let Some(last) = parts.pop() {
            parts.push(last.acknowledged());
        }
        parts.push(batch(BATCH_END));
        self.transaction(operation, parts)
    }
}

fn batch(kind: u16) -> NetlinkWriter {
    NetlinkWriter::new(kind, REQUEST, &fixed(0, SUBSYSTEM >> 8))
}

fn message(kind: u16, flags: u16) -> NetlinkWriter {
    NetlinkWriter::new(SUBSYSTEM | kind, REQUEST | flags, &fixed(INET, 0))
}

fn new_table(table: &str) -> NetlinkWriter {
    message(NEW_TABLE, CREATE).text(1, table).network_number(2, 0)
}

fn new_chain(table: &str, chain: &FirewallChain) -> NetlinkWriter {
    let kind = if chain.translates { "nat" } else { "filter" };
    message(NEW_CHAIN, CREATE)
        .text(1, table)
        .text(3, &chain.name)
        .nested(4, |inside| {
            inside
                .network_number(1, chain.hook.number())
                .network_number(2, chain.priority.cast_unsigned())
        })
        .text(7, kind)
}

fn new_rule(table: &str, chain: &str, rule: &FirewallRule) -> NetlinkWriter {
    message(NEW_RULE, CREATE | APPEND).text(1, table).text(2, chain).nested(4, |inside| {
        let inside = rule.conditions.iter().fold(inside, expressions::condition);
        expressions::verdict(inside, &rule.verdict)
    })
}
