//! System call names and their numbers.
//!
//! Rule: one sorted table per architecture, looked up by name. Does not know what calls do.

mod aarch64;
mod x32;
mod x86;
mod x86_64;

use crate::profile::Architecture;

#[cfg(test)]
mod tests;

/// Marks a number as a call of x32, which shares its identity with x86_64.
pub(crate) const X32_BIT: u32 = 0x4000_0000;

/// The number of a call on an architecture, if it has the call.
pub fn syscall_number(architecture: Architecture, name: &str) -> Option<u32> {
    let table = table(architecture);
    let index = table.binary_search_by_key(&name, |(known, _)| known).ok()?;
    let mark = if architecture == Architecture::X32 { X32_BIT } else { 0 };
    Some(table[index].1 | mark)
}

/// Every call of an architecture, in the order of names.
pub fn syscall_names(architecture: Architecture) -> impl Iterator<Item = &'static str> {
    table(architecture).iter().map(|(name, _)| *name)
}

fn table(architecture: Architecture) -> &'static [(&'static str, u32)] {
    match architecture {
        Architecture::X86_64 => x86_64::NUMBERS,
        Architecture::X86 => x86::NUMBERS,
        Architecture::X32 => x32::NUMBERS,
        Architecture::Aarch64 => aarch64::NUMBERS,
    }
}
