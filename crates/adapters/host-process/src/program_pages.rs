//! Drops the resident pages of the program itself: its code and its constants.
//!
//! The kernel maps a program in chunks around whatever is run or read, and keeps it mapped: a
//! process that has started, read its configuration and run a burst of pods has nearly all of its
//! program resident for ever, while waiting needs a small part of it. After the drop that part is
//! faulted in again from the page cache within microseconds, and the rest is free for other uses.
//!
//! Rule: only pages of the program's file, and only segments that its ELF headers load without
//! write permission. What the loader wrote once and then made read-only (RELRO) looks alike in the
//! map, and is not touched: its pages are private.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// The kernel's page size.
const PAGE: u64 = 4096;
/// The ELF headers are at the beginning of the file.
const HEADERS: u64 = 4096;

/// Drops all of them; returns how many bytes of address space were advised. Pages come back by page
/// faults.
///
/// # Errors
/// If the process cannot read its own map or program, or the kernel refuses.
pub fn release_clean_pages(process: &Path) -> std::io::Result<u64> {
    let maps = fs::read(process.join("maps"))?;
    let maps = String::from_utf8_lossy(&maps);
    let program = fs::read_link(process.join("exe"))?;
    let mut headers = Vec::new();
    File::open(process.join("exe"))?.take(HEADERS).read_to_end(&mut headers)?;
    let read_only = read_only_segments(&headers).unwrap_or_default();
    let mut bytes = 0;
    for range in ranges_of(&maps, &program.to_string_lossy(), &read_only) {
        bytes += release_range(&range)?;
    }
    Ok(bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageRange {
    begin: usize,
    end: usize,
}

/// File offsets, rounded to pages, of the segments that are loaded and never written to. `None` if
/// it is not a little-endian 64-bit ELF program.
fn read_only_segments(elf: &[u8]) -> Option<Vec<u64>> {
    const LOADED: u64 = 1;
    const WRITABLE: u64 = 2;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |all, byte| (all << 8) | u64::from(*byte)))
    };
    if elf.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let first = usize::try_from(number(32, 8)?).ok()?;
    let (size, count) = (usize::try_from(number(54, 2)?).ok()?, number(56, 2)?);
    let mut found = Vec::new();
    for header in 0..usize::try_from(count).ok()? {
        let at = first.checked_add(header.checked_mul(size)?)?;
        if number(at, 4)? == LOADED && number(at.checked_add(4)?, 4)? & WRITABLE == 0 {
            found.push(number(at.checked_add(8)?, 8)? / PAGE * PAGE);
        }
    }
    Some(found)
}

/// Mappings of this file that begin at one of these offsets and are not writable.
fn ranges_of(maps: &str, program: &str, read_only: &[u64]) -> Vec<PageRange> {
    maps.lines().filter_map(|line| range_of(line, program, read_only)).collect()
}

/// `begin-end permissions offset device inode path`
fn range_of(line: &str, program: &str, read_only: &[u64]) -> Option<PageRange> {
    let mut words = line.splitn(6, ' ');
    let (addresses, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?.trim_start();
    let offset = u64::from_str_radix(offset, 16).ok()?;
    if !matches!(permissions, "r-xp" | "r--p") || path != program || !read_only.contains(&offset) {
        return None;
    }
    let (begin, end) = addresses.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = PageRange { begin: number(begin)?, end: number(end)? };
    (range.begin < range.end).then_some(range)
}

#[expect(unsafe_code, reason = "advice about memory by its address")]
fn release_range(range: &PageRange) -> std::io::Result<u64> {
    let length = range.end - range.begin;
    let address = std::ptr::with_exposed_provenance_mut(range.begin);
    // SAFETY: the range was read from this process's own map as private, not writable and backed by
    // the program's file, at a segment that the program's headers load without write permission; so
    // it was never written to, and it stays mapped as long as the process lives. Its pages are
    // therefore clean copies of the file; the kernel reads them in again when they are next needed,
    // so no visible byte changes.
    let outcome = unsafe { libc::madvise(address, length, libc::MADV_DONTNEED) };
    if outcome == 0 { Ok(length as u64) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
