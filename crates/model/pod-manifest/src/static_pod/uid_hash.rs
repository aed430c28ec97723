//! The hash behind the UIDs of the reference's static pods.
//!
//! The rule it keeps: FNV-1a of 128 bits, over the dump of the object and then the words that say
//! where it came from. The dump itself (Go's memory, printed) is not made here.

/// Where a hashed pod came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashedSource<'source> {
    File { node_name: &'source str, path: &'source str },
    Url(&'source str),
}

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// FNV-1a of 128 bits.
pub fn fnv128a(bytes: &[u8]) -> u128 {
    continue_hash(OFFSET, bytes)
}

fn continue_hash(state: u128, bytes: &[u8]) -> u128 {
    bytes.iter().fold(state, |state, byte| (state ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// The UID that the reference would give to an object with this dump.
pub fn reference_uid(dump: &[u8], source: HashedSource<'_>) -> String {
    let words = match source {
        HashedSource::File { node_name, path } => format!("host:{node_name}file:{path}"),
        HashedSource::Url(url) => format!("url:{url}"),
    };
    format!("{:032x}", continue_hash(fnv128a(dump), words.as_bytes()))
}
