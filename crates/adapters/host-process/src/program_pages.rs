//! Gives back the pages of our own program code that lie in memory.
//!
//! The kernel maps code in chunks around whatever is run, and keeps it mapped: a process that has
//! started, read its configuration and run a burst of pods holds nearly all of its program for ever,
//! while what it needs to wait is a small part. Given back, that part comes again from the page
//! cache within microseconds, and the rest is for others to use.
//!
//! Rule: only code, which is never written to, of the file that we are; never data.

use std::fs;
use std::path::Path;

/// Gives back all of it; tells how many bytes of address space were named. What is needed comes back
/// by itself.
///
/// # Errors
/// When the process cannot read its own map, or the kernel refuses.
pub fn give_back(process: &Path) -> std::io::Result<u64> {
    let maps = fs::read_to_string(process.join("maps"))?;
    let program = fs::read_link(process.join("exe"))?;
    let mut bytes = 0;
    for range in code_of(&maps, &program.to_string_lossy()) {
        bytes += give_back_range(&range)?;
    }
    Ok(bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    begin: usize,
    end: usize,
}

/// Mappings of this file that can be run and not be written to.
fn code_of(maps: &str, program: &str) -> Vec<Range> {
    maps.lines().filter_map(|line| code_line(line, program)).collect()
}

/// `begin-end permissions offset device inode path`
fn code_line(line: &str, program: &str) -> Option<Range> {
    let mut words = line.splitn(6, ' ');
    let (addresses, permissions) = (words.next()?, words.next()?);
    let path = words.nth(3)?.trim_start();
    if permissions != "r-xp" || path != program {
        return None;
    }
    let (begin, end) = addresses.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = Range { begin: number(begin)?, end: number(end)? };
    (range.begin < range.end).then_some(range)
}

#[expect(unsafe_code, reason = "advice about memory by its address")]
fn give_back_range(range: &Range) -> std::io::Result<u64> {
    let length = range.end - range.begin;
    let address = std::ptr::with_exposed_provenance_mut(range.begin);
    // SAFETY: the range was read from this process's own map as private, executable, not writable
    // and backed by the program's file, and program code stays mapped as long as the process lives.
    // Its pages are therefore clean copies of the file; the kernel reads them in again when they are
    // next run, so no byte that anybody can see changes.
    let outcome = unsafe { libc::madvise(address, length, libc::MADV_DONTNEED) };
    if outcome == 0 { Ok(length as u64) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
