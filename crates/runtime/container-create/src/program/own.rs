//! Detects whether a program to execute is the runtime's own, by device and inode.
//!
//! Rule: the kernel executes what a path resolves to, which may be a `/proc` link to the executable
//! of the process itself, i.e. of a helper; or a script or program that names such a path as its
//! interpreter. Each of these is followed as the kernel would. A file that cannot be read is not
//! the runtime's.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use crate::error::{During, Result};

#[cfg(test)]
mod tests;

/// The kernel's limits: nested interpreters, and the part of a script that it reads.
const MAX_INTERPRETERS: usize = 6;
const SCRIPT_HEAD: usize = 256;
/// Upper limits of a path and of a program's headers.
const MAX_PATH_LENGTH: usize = 4096;
const MAX_HEADERS: u16 = 256;
const INTERPRETER: u32 = 3;

/// A file by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }

    /// Runs in the host's mount namespace.
    pub(crate) fn of_this_program() -> Result<Self> {
        let stat = rustix::fs::stat("/proc/self/exe").during("looking at this program")?;
        Ok(Self::of(&stat))
    }
}

/// Whether execve(2) of this path would run `own`, as the program or as an interpreter.
pub(super) fn leads_to(path: &CString, own: FileIdentity) -> bool {
    let mut path = path.clone();
    for _ in 0..MAX_INTERPRETERS {
        let Some(file) = open_program(&path, own) else { return false };
        let file = match file {
            ProgramFile::Runtime => return true,
            ProgramFile::Other(file) => file,
        };
        let read = |offset: u64, length: usize| read_at(&file, offset, length);
        let Some(next) = interpreter(&read).and_then(|next| CString::new(next).ok()) else {
            return false;
        };
        path = next;
    }
    false
}

enum ProgramFile {
    Runtime,
    Other(OwnedFd),
}

/// None if it is missing, not a regular file, or not readable.
fn open_program(path: &CString, own: FileIdentity) -> Option<ProgramFile> {
    // O_PATH first: it may be a device.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat(CWD, path.as_c_str(), flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&found).ok()?;
    if FileIdentity::of(&stat) == own {
        return Some(ProgramFile::Runtime);
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path.as_c_str(), flags, Mode::empty()).ok()?;
    let same = FileIdentity::of(&rustix::fs::fstat(&file).ok()?) == own;
    Some(if same { ProgramFile::Runtime } else { ProgramFile::Other(file) })
}

/// Reads up to `length` bytes.
fn read_at(file: &OwnedFd, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let count = rustix::io::pread(file, &mut bytes, offset).unwrap_or_default();
    bytes.truncate(count);
    bytes
}

/// The interpreter's path of a script or an ELF program.
fn interpreter(read: &impl Fn(u64, usize) -> Vec<u8>) -> Option<Vec<u8>> {
    let head = read(0, SCRIPT_HEAD);
    match head.strip_prefix(b"#!") {
        Some(line) => of_script(line),
        None => of_elf(&head, read),
    }
}

fn of_script(line: &[u8]) -> Option<Vec<u8>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = line.iter().position(|byte| !is_space(byte))?;
    let line = &line[from..];
    let to = line.iter().position(|byte| is_space(byte) || matches!(byte, b'\n' | 0));
    let path = &line[..to.unwrap_or(line.len())];
    (!path.is_empty()).then(|| path.to_vec())
}

/// upstream: elf(5), Elf32_Ehdr and Elf64_Ehdr, and their program headers
fn of_elf(head: &[u8], read: &impl Fn(u64, usize) -> Vec<u8>) -> Option<Vec<u8>> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let wide = *head.get(4)? == 2;
    let big = *head.get(5)? == 2;
    let number = |bytes: &[u8], at: usize, length: usize| -> Option<u64> {
        let part = bytes.get(at..at.checked_add(length)?)?;
        let add = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        Some(if big { part.iter().fold(0, add) } else { part.iter().rev().fold(0, add) })
    };
    let word = if wide { 8 } else { 4 };
    let table = number(head, if wide { 32 } else { 28 }, word)?;
    let (size_at, count_at) = if wide { (54, 56) } else { (42, 44) };
    let size = number(head, size_at, 2)?;
    let count = u16::try_from(number(head, count_at, 2)?).ok()?.min(MAX_HEADERS);
    // The segment's offset and size in the file.
    let (offset_at, length_at) = if wide { (8, 32) } else { (4, 16) };
    for entry in 0..u64::from(count) {
        let at = table.checked_add(entry.checked_mul(size)?)?;
        let header = read(at, length_at + word);
        if number(&header, 0, 4)? != u64::from(INTERPRETER) {
            continue;
        }
        let offset = number(&header, offset_at, word)?;
        let length = usize::try_from(number(&header, length_at, word)?).ok()?;
        let mut path = read(offset, length.min(MAX_PATH_LENGTH));
        path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
        return (!path.is_empty()).then_some(path);
    }
    None
}
