//! Reads a pinned version out of a go.mod, and the key under which a build of it is kept.
//!
//! Rule: the go.mod is the only place where a version is written. It reads the `require` lines
//! alone; it is no parser of the whole format.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The version that the go.mod requires of a module.
pub(super) fn required_version(go_mod: &Path, module: &str) -> Result<String> {
    let text = fs::read_to_string(go_mod).with_context(|| go_mod.display().to_string())?;
    find_requirement(&text, module)
        .with_context(|| format!("{} has no require line for {module}", go_mod.display()))
}

pub(super) fn find_requirement(go_mod: &str, module: &str) -> Option<String> {
    let mut in_block = false;
    for line in go_mod.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let mut words = code.split_whitespace();
        let requirement = match words.next() {
            Some("require") => match words.next() {
                Some("(") => {
                    in_block = true;
                    None
                }
                other => other,
            },
            Some(")") => {
                in_block = false;
                None
            }
            first if in_block => first,
            _ => None,
        };
        if requirement == Some(module) {
            return words.next().map(str::to_owned);
        }
    }
    None
}

/// A short stable hash (FNV-1a, 64 bits): the same on every machine and with every toolchain, which
/// the standard library's hasher does not promise.
pub(super) fn short_hash<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for piece in pieces {
        // The length goes in as well, so that moving a byte between pieces changes the hash.
        for byte in (piece.len() as u64).to_le_bytes().iter().chain(piece) {
            hash ^= u64::from(*byte);
            hash = hash.wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}
