//! What is mounted where, as the kernel tells it.
//!
//! Rule: the mount table decides, never a comparison of device numbers, which misses bind mounts.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::trouble::{Doing as _, Trouble};

const TABLE: &str = "/proc/self/mountinfo";

/// Mount points at or below a path, the deepest and latest first: the order to take them down in.
pub fn mounts_beneath(path: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let table = std::fs::read(TABLE).doing("read", Path::new(TABLE))?;
    // The table speaks of real paths.
    let path = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Trouble::new("resolve", path, error)),
    };
    Ok(mounts_in(&table, &path))
}

/// The same of a given table.
pub fn mounts_in(table: &[u8], path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|point| PathBuf::from(OsString::from_vec(unescape(point))))
        .filter(|point| point.starts_with(path))
        .collect();
    // Later lines lie on top of earlier ones.
    found.reverse();
    found.sort_by_key(|point| std::cmp::Reverse(point.as_os_str().as_bytes().len()));
    found
}

/// Space, tab, newline and backslash stand as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        match digits {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

/// Whether a name in an open folder (or the folder itself, with an empty name) is the root of a
/// mount. Symlinks are not followed.
pub fn is_mount_root(folder: impl AsFd, name: &Path) -> Result<bool, Errno> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if name.as_os_str().is_empty() {
        flags |= AtFlags::EMPTY_PATH;
    }
    let stat = rustix::fs::statx(folder, name, flags, StatxFlags::TYPE)?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
