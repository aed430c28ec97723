//! Removes a tree that other programs have filled.
//!
//! Rule: no symlink is followed and no mount is crossed: at a mount the removal stops with an error
//! and the mounted file system stays as it is. A tree of any depth is removed with few descriptors:
//! directories that are too deep are first moved up. The same tree may be removed concurrently.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::beneath::{OpenDir, check_name, open_resolved};
use crate::path_error::{PathError, PathErrorExt as _};

mod unprotect;

/// Directories held open at once.
const MAX_OPEN_DEPTH: usize = 32;

/// Names read of one directory at a time.
const BATCH: usize = 512;

/// How often a directory is emptied while another process fills it, or while its content is being
/// moved up.
const MAX_ATTEMPTS: usize = 64;

/// Removes `name` in `parent` with all below it. A name that does not exist counts as removed.
pub fn remove_tree(parent: &OpenDir, name: impl AsRef<OsStr>) -> Result<(), PathError> {
    let name = name.as_ref();
    check_name(name)
        .map_err(|error| PathError::refused("remove", &parent.path_of(name), &error.to_string()))?;
    remove_name(parent, name, &mut MoveTarget { top: None, next: 0 }, 0)
}

/// Where directories from too deep are moved to: the top of the tree.
struct MoveTarget<'a> {
    top: Option<&'a OpenDir>,
    next: u64,
}

fn remove_name(
    parent: &OpenDir,
    name: &OsStr,
    move_target: &mut MoveTarget<'_>,
    depth: usize,
) -> Result<(), PathError> {
    match unlink(parent, name, AtFlags::empty(), depth) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(PathError::new("remove", &parent.path_of(name), errno)),
    }
    match unlink(parent, name, AtFlags::REMOVEDIR, depth) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(PathError::new("remove", &parent.path_of(name), errno)),
    }
    if let Some(top) = move_target.top.filter(|_| depth >= MAX_OPEN_DEPTH) {
        return move_up((parent, name), depth, top, &mut move_target.next);
    }
    for _ in 0..MAX_ATTEMPTS {
        // Opened again each time: the name may have become another directory's.
        let Some(dir) = open_child_dir(parent, name)? else { return Ok(()) };
        if let Some(top) = move_target.top {
            let mut below = MoveTarget { top: Some(top), next: move_target.next };
            let emptied = empty(&dir, &mut below, depth + 1);
            move_target.next = below.next;
            emptied?;
        } else {
            empty(&dir, &mut MoveTarget { top: Some(&dir), next: 0 }, depth + 1)?;
        }
        match unlink(parent, name, AtFlags::REMOVEDIR, depth) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => {
                return Err(PathError::new("remove the directory", &parent.path_of(name), errno));
            }
        }
    }
    Err(PathError::new("remove the directory", &parent.path_of(name), Errno::NOTEMPTY))
}

/// Removes one name, and first the flags or modes that forbid it.
fn unlink(parent: &OpenDir, name: &OsStr, flags: AtFlags, depth: usize) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, flags) {
        Err(errno) if unprotect::unprotect(parent, name, depth, errno) => {
            rustix::fs::unlinkat(parent, name, flags)
        }
        answer => answer,
    }
}

/// Empties a directory, until a listing finds nothing.
fn empty(dir: &OpenDir, move_target: &mut MoveTarget<'_>, depth: usize) -> Result<(), PathError> {
    loop {
        let names = read_name_batch(dir)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            remove_name(dir, &name, move_target, depth)?;
        }
    }
}

fn read_name_batch(dir: &OpenDir) -> Result<Vec<OsString>, PathError> {
    use std::os::unix::ffi::OsStringExt as _;
    let listing = match rustix::fs::Dir::read_from(dir) {
        // Another process has removed it.
        Err(Errno::NOENT) => return Ok(Vec::new()),
        listing => listing.operation("list", dir.path())?,
    };
    let mut names = Vec::new();
    for entry in listing {
        let entry = match entry {
            Err(Errno::NOENT) => break,
            entry => entry.operation("list", dir.path())?,
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}

/// `None` if another process has removed it.
fn open_child_dir(parent: &OpenDir, name: &OsStr) -> Result<Option<OpenDir>, PathError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let path = parent.path_of(name);
    let open = || open_resolved(parent.as_fd(), Path::new(name), flags, resolve);
    let opened = match open() {
        Err(Errno::ACCESS) if unprotect::grant_owner_access(parent, name) => open(),
        opened => opened,
    };
    match opened {
        Ok(descriptor) => Ok(Some(OpenDir::of(descriptor, path))),
        Err(Errno::NOENT) => Ok(None),
        // The kernel's error for a mount point itself.
        Err(Errno::XDEV) => Err(PathError::new("remove what is mounted at", &path, Errno::BUSY)),
        Err(errno) => Err(PathError::new("open the directory", &path, errno)),
    }
}

fn move_up(
    (parent, name): (&OpenDir, &OsStr),
    depth: usize,
    top: &OpenDir,
    next: &mut u64,
) -> Result<(), PathError> {
    loop {
        let target = PathBuf::from(format!(".removing-{next}"));
        *next += 1;
        let rename = || {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(parent, name, top, &target, flags)
        };
        let renamed = match rename() {
            Err(errno) if unprotect::unprotect(parent, name, depth, errno) => rename(),
            renamed => renamed,
        };
        match renamed {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A hostile tree may contain such names already.
            Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(PathError::new("move up to remove", &parent.path_of(name), errno));
            }
        }
    }
}
