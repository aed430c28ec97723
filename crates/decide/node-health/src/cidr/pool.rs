//! One cluster CIDR cut into blocks: a bitmap of used blocks, and their holders.
//!
//! IPv4 and IPv6 share one 128-bit arithmetic. The bitmap is never larger than 2 MiB. Excluded
//! blocks are used without a holder and stay so.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pod_model::Cidr;

use crate::facts::NodeId;

/// A cluster CIDR that cannot be cut into blocks of this size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Blocks larger than the cluster CIDR.
    #[error("cluster range {cluster}: node mask size {mask} is smaller than the range's own {own}")]
    BlockTooLarge { cluster: String, mask: u8, own: u8 },
    /// More mask bits than an address has.
    #[error("cluster range {cluster}: node mask size {mask} is more than an address has ({bits})")]
    NoSuchMask { cluster: String, mask: u8, bits: u8 },
    /// Too many blocks for the bitmap.
    #[error(
        "cluster range {cluster}: node mask size {mask} is more than {limit} above the range's own {own}"
    )]
    TooManyBlocks { cluster: String, mask: u8, own: u8, limit: u8 },
}

/// Consecutive blocks of one pool; an allocation is always one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of the cluster CIDR.
    pub pool: usize,
    /// Its first block.
    pub first: u32,
    /// Its last block.
    pub last: u32,
}

/// One cluster CIDR.
#[derive(Clone, Debug)]
pub struct Pool {
    cluster: String,
    base: u128,
    bits: u8,
    own: u8,
    mask: u8,
    taken: Vec<u64>,
    taken_count: u32,
    next: u32,
    /// First and last of the blocks that are never allocated, even if a node holds one.
    excluded: Vec<(u32, u32)>,
    holders: BTreeMap<u32, NodeId>,
    /// Second and further holders; empty unless another client wrote a CIDR that was used.
    extra_holders: BTreeMap<u32, Vec<NodeId>>,
}

impl Pool {
    /// Cuts a cluster CIDR into blocks of this mask size.
    pub fn new(cluster: &Cidr, mask: u8) -> Result<Self, PoolError> {
        let (base, bits) = number(cluster.network);
        let own = cluster.prefix_length;
        let text = format!("{}/{own}", cluster.network);
        if mask > bits {
            return Err(PoolError::NoSuchMask { cluster: text, mask, bits });
        }
        if mask < own {
            return Err(PoolError::BlockTooLarge { cluster: text, mask, own });
        }
        // Upstream limits IPv6 to 16 bits and IPv4 not at all; 24 keeps the bitmap within 2 MiB.
        let limit = if bits == 32 { 24 } else { 16 };
        if mask - own > limit {
            return Err(PoolError::TooManyBlocks { cluster: text, mask, own, limit });
        }
        let blocks = 1_u32 << (mask - own);
        let words = usize::try_from(blocks.div_ceil(64)).unwrap_or(0);
        Ok(Self {
            cluster: text,
            base,
            bits,
            own,
            mask,
            taken: vec![0; words],
            taken_count: 0,
            next: 0,
            excluded: Vec::new(),
            holders: BTreeMap::new(),
            extra_holders: BTreeMap::new(),
        })
    }

    /// The cluster CIDR as text.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// How many blocks it has.
    pub fn size(&self) -> u32 {
        1 << (self.mask - self.own)
    }

    /// How many are used.
    pub fn taken(&self) -> u32 {
        self.taken_count
    }

    /// The blocks that this CIDR overlaps; none if it lies outside.
    pub(super) fn blocks_of(&self, cidr: &Cidr) -> Option<(u32, u32)> {
        let (start, bits) = number(cidr.network);
        if bits != self.bits {
            return None;
        }
        let shared = cidr.prefix_length.min(self.own);
        let beyond = u32::from(bits - shared);
        if start.checked_shr(beyond).unwrap_or(0) != self.base.checked_shr(beyond).unwrap_or(0) {
            return None;
        }
        if cidr.prefix_length <= self.own {
            return Some((0, self.size() - 1));
        }
        let end = start | ones(u32::from(bits - cidr.prefix_length));
        Some((self.index(start), self.index(end)))
    }

    fn index(&self, address: u128) -> u32 {
        let offset =
            (address ^ self.base).checked_shr(u32::from(self.bits - self.mask)).unwrap_or(0);
        u32::try_from(offset).unwrap_or(u32::MAX)
    }

    /// The CIDR of a block as text; of several blocks, that of the first.
    pub(super) fn text(&self, block: &Block) -> String {
        let offset =
            u128::from(block.first).checked_shl(u32::from(self.bits - self.mask)).unwrap_or(0);
        let address = self.base | offset;
        let address = if self.bits == 32 {
            IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(address).unwrap_or(u32::MAX)))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(address))
        };
        format!("{address}/{}", self.mask)
    }

    /// Excludes the blocks that this CIDR overlaps, for good.
    pub(super) fn exclude(&mut self, cidr: &Cidr) {
        if let Some((first, last)) = self.blocks_of(cidr) {
            self.excluded.push((first, last));
            for block in first..=last {
                self.take(block);
            }
        }
    }

    /// Adds a holder that holds none of these blocks yet. Returns another holder of one of them, if
    /// any.
    pub(super) fn add_holder(&mut self, node: NodeId, block: &Block) -> Option<NodeId> {
        let mut other = None;
        for number in block.first..=block.last {
            self.take(number);
            match self.holders.entry(number) {
                Entry::Vacant(place) => {
                    place.insert(node);
                }
                Entry::Occupied(place) => {
                    other = other.or(Some(*place.get()));
                    self.extra_holders.entry(number).or_default().push(node);
                }
            }
        }
        other
    }

    /// Removes a holder; blocks without any are free again.
    pub(super) fn remove_holder(&mut self, node: NodeId, block: &Block) {
        for number in block.first..=block.last {
            if let Some(extra_holders) = self.extra_holders.get_mut(&number) {
                extra_holders.retain(|extra_holder| *extra_holder != node);
            }
            if self.holders.get(&number) == Some(&node) {
                let heir = self.extra_holders.get_mut(&number).and_then(Vec::pop);
                match heir {
                    Some(heir) => {
                        self.holders.insert(number, heir);
                    }
                    None => {
                        self.holders.remove(&number);
                        self.free(number);
                    }
                }
            }
            if self.extra_holders.get(&number).is_some_and(Vec::is_empty) {
                self.extra_holders.remove(&number);
            }
        }
    }

    /// Allocates the next free block, continuing after the last one and wrapping around.
    pub(super) fn next_free(&mut self, pool: usize, node: NodeId) -> Option<Block> {
        if self.taken_count == self.size() {
            return None;
        }
        let number = self.free_from(self.next).or_else(|| self.free_from(0))?;
        self.next = number + 1;
        self.take(number);
        self.holders.insert(number, node);
        Some(Block { pool, first: number, last: number })
    }

    /// The first free block at or after this one, which may lie behind the last. Full words are
    /// skipped.
    fn free_from(&self, start: u32) -> Option<u32> {
        let (first_word, offset) = place(start);
        for (word_number, word) in self.taken.iter().enumerate().skip(first_word) {
            let below = if word_number == first_word { (1_u64 << offset) - 1 } else { 0 };
            let free = !(word | below);
            if free != 0 {
                let number = u32::try_from(word_number).ok()? * 64 + free.trailing_zeros();
                return (number < self.size()).then_some(number);
            }
        }
        None
    }

    fn take(&mut self, block: u32) {
        let (word, bit) = place(block);
        if let Some(word) = self.taken.get_mut(word)
            && *word & (1 << bit) == 0
        {
            *word |= 1 << bit;
            self.taken_count += 1;
        }
    }

    /// Frees a block that had a holder.
    fn free(&mut self, block: u32) {
        if self.excluded.iter().any(|(first, last)| (*first..=*last).contains(&block)) {
            return;
        }
        let (word, bit) = place(block);
        if let Some(word) = self.taken.get_mut(word) {
            *word &= !(1 << bit);
            self.taken_count -= 1;
        }
    }
}

fn place(block: u32) -> (usize, u32) {
    (usize::try_from(block / 64).unwrap_or(usize::MAX), block % 64)
}

fn ones(count: u32) -> u128 {
    u128::MAX.checked_shr(128 - count.min(128)).unwrap_or(0)
}

/// An address as a number, and the number of bits of its family.
fn number(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}
