//! What is mounted where, according to the kernel.
//!
//! Rule: the mount table decides, never a comparison of device numbers, which misses bind mounts.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use mount_table::MountTable;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::path_error::{PathError, PathErrorExt as _};

/// Mount points at or below a path, the deepest and latest first: the order in which to unmount
/// them.
pub fn mounts_beneath(path: &Path) -> Result<Vec<PathBuf>, PathError> {
    let table = MountTable::read().operation("read", Path::new(mount_table::PATH))?;
    // The table contains real paths.
    let path = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(PathError::new("resolve", path, error)),
    };
    Ok(table.beneath(&path))
}

/// Whether a name in an open directory (or the directory itself, with an empty name) is the root of
/// a mount. Symlinks are not followed.
pub fn is_mount_root(dir: impl AsFd, name: &Path) -> Result<bool, Errno> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if name.as_os_str().is_empty() {
        flags |= AtFlags::EMPTY_PATH;
    }
    let stat = rustix::fs::statx(dir, name, flags, StatxFlags::TYPE)?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
