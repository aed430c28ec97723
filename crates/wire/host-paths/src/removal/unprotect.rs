//! Clears what keeps a name from being removed: immutable flags, and modes.
//!
//! Rule: only files in the tree that is removed are changed, never its parent directory. A
//! container with `CAP_LINUX_IMMUTABLE` sets such flags in its own layer; they must not outlive it.
//! Only regular files and directories are opened: opening a device or a FIFO could have effects or
//! block.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, IFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::beneath::{OpenDir, open_resolved};

/// What the owner of a directory needs to empty it.
const OWNER: u32 = 0o700;

/// Called after removing `name` failed with `errno`. Returns whether anything changed, so that a
/// retry may succeed.
pub(super) fn unprotect(parent: &OpenDir, name: &OsStr, depth: usize, errno: Errno) -> bool {
    match errno {
        Errno::PERM => {
            let around = depth > 0 && clear_immutable_flags(parent);
            around | reopen(parent, name).is_some_and(|file| clear_immutable_flags(&file))
        }
        Errno::ACCESS => depth > 0 && add_owner_mode(parent),
        _ => false,
    }
}

/// Lets the owner read a directory whose mode forbids it; not needed for root.
pub(super) fn grant_owner_access(parent: &OpenDir, name: &OsStr) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    found(parent, name, flags).is_some_and(|dir| {
        let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
        rustix::fs::chmodat(CWD, link, Mode::from_raw_mode(OWNER), rustix::fs::AtFlags::empty())
            .is_ok()
    })
}

fn add_owner_mode(dir: &OpenDir) -> bool {
    let Ok(stat) = rustix::fs::fstat(dir) else { return false };
    stat.st_mode & OWNER != OWNER && rustix::fs::fchmod(dir, Mode::from_raw_mode(OWNER)).is_ok()
}

fn clear_immutable_flags(file: impl AsFd) -> bool {
    let held = IFlags::IMMUTABLE | IFlags::APPEND;
    let Ok(flags) = rustix::fs::ioctl_getflags(&file) else { return false };
    flags.intersects(held) && rustix::fs::ioctl_setflags(&file, flags - held).is_ok()
}

fn found(parent: &OpenDir, name: &OsStr, flags: OFlags) -> Option<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    open_resolved(parent.as_fd(), Path::new(name), flags, resolve).ok()
}

fn reopen(parent: &OpenDir, name: &OsStr) -> Option<OwnedFd> {
    let found = found(parent, name, OFlags::PATH | OFlags::NOFOLLOW)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).ok()?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return None;
    }
    // The magic link leads to this very inode, even if the name was swapped.
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, link, flags, Mode::empty()).ok()
}
