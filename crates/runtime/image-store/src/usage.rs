//! Disk usage of a tree: blocks and inodes, each inode once.
//!
//! Rule: the tree may be as deep as a container likes. It is walked with a few open directories,
//! never by path, which the kernel limits. Files renamed or removed meanwhile may or may not count.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{PathContext as _, Result};

#[cfg(test)]
mod tests;

/// Directories kept open at once; parents beyond that are reopened through `..`.
const MAX_OPEN_DIRS: usize = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

impl Usage {
    /// Walks a tree without following symlinks. Files that vanish meanwhile count as nothing.
    pub(crate) fn of_tree(dir: &Path) -> Result<Self> {
        UsageWalk::default().all(dir).doing("counting what is in", dir)
    }
}

/// A directory on the way from the root to the current one.
struct WalkLevel {
    /// None while too many directories below it are open.
    descriptor: Option<OwnedFd>,
    identity: (u64, u64),
    /// Subdirectories still to be counted.
    pending: Vec<CString>,
}

#[derive(Default)]
struct UsageWalk {
    usage: Usage,
    linked: BTreeSet<(u64, u64)>,
    levels: Vec<WalkLevel>,
}

impl UsageWalk {
    fn all(mut self, dir: &Path) -> rustix::io::Result<Usage> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(self.usage),
            root => self.enter(root?)?,
        }
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.pending.pop() else {
                self.leave()?;
                continue;
            };
            let Some(here) = &level.descriptor else { continue };
            match rustix::fs::openat(here, &name, flags, Mode::empty()) {
                // Removed or replaced meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                inner => self.enter(inner?)?,
            }
        }
        Ok(self.usage)
    }

    /// Counts a directory and its entries; queues its subdirectories.
    fn enter(&mut self, dir: OwnedFd) -> rustix::io::Result<()> {
        let stat = rustix::fs::fstat(&dir)?;
        self.count(&stat);
        let mut pending = Vec::new();
        let listing = match Dir::read_from(&dir) {
            // It was removed after it was opened.
            Err(Errno::NOENT) => None,
            listing => Some(listing?),
        };
        for entry in listing.into_iter().flatten() {
            let entry = match entry {
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.visit(&dir, name, &mut pending)?;
            }
        }
        if let Some(above) = self.levels.len().checked_sub(MAX_OPEN_DIRS) {
            self.levels[above].descriptor = None;
        }
        let identity = (stat.st_dev, stat.st_ino);
        self.levels.push(WalkLevel { descriptor: Some(dir), identity, pending });
        Ok(())
    }

    fn visit(
        &mut self,
        dir: &OwnedFd,
        name: &CStr,
        pending: &mut Vec<CString>,
    ) -> rustix::io::Result<()> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            pending.push(name.to_owned());
        } else if stat.st_nlink < 2 || self.linked.insert((stat.st_dev, stat.st_ino)) {
            self.count(&stat);
        }
        Ok(())
    }

    fn count(&mut self, stat: &Stat) {
        self.usage.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        self.usage.inodes += 1;
    }

    /// Goes to the parent. If the directory was moved meanwhile, the parent is lost: what is queued
    /// above is not counted this time.
    fn leave(&mut self) -> rustix::io::Result<()> {
        let Some(left) = self.levels.pop() else { return Ok(()) };
        let (Some(above), Some(from)) = (self.levels.last_mut(), left.descriptor) else {
            return Ok(());
        };
        if above.descriptor.is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let found = match rustix::fs::openat(&from, c"..", flags, Mode::empty()) {
                Err(Errno::NOENT) => None,
                found => Some(found?),
            };
            let same = found.filter(|found| {
                rustix::fs::fstat(found)
                    .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == above.identity)
            });
            match same {
                Some(found) => above.descriptor = Some(found),
                None => self.levels.clear(),
            }
        }
        Ok(())
    }
}
