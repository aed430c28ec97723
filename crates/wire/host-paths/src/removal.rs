//! Removing a tree that others have filled.
//!
//! Rule: no symlink is followed and no mount is crossed: at a mount the removal stops with an error
//! and what is mounted stays as it is. A tree of any depth is removed with few descriptors: what
//! lies too deep is first moved up.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::beneath::{Folder, check_name, open_resolved};
use crate::trouble::{Doing as _, Trouble};

/// Folders held open at once.
const DEEPEST: usize = 32;

/// Names read of one folder at a time.
const BATCH: usize = 512;

/// Removes `name` in `parent` with all below it. What is not there is removed already.
pub fn remove_tree(parent: &Folder, name: impl AsRef<OsStr>) -> Result<(), Trouble> {
    let name = name.as_ref();
    check_name(name).map_err(|why| Trouble::refused("remove", &parent.path_of(name), &why))?;
    remove_name(parent, name, &mut Moved { top: None, next: 0 }, 0)
}

/// Where folders from too deep are moved to: the tree's own top.
struct Moved<'a> {
    top: Option<&'a Folder>,
    next: u64,
}

fn remove_name(
    parent: &Folder,
    name: &OsStr,
    moved: &mut Moved<'_>,
    depth: usize,
) -> Result<(), Trouble> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(Trouble::new("remove", &parent.path_of(name), errno)),
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(Trouble::new("remove", &parent.path_of(name), errno)),
    }
    if let Some(top) = moved.top.filter(|_| depth >= DEEPEST) {
        return move_up(parent, name, top, &mut moved.next);
    }
    let folder = enter(parent, name)?;
    if let Some(top) = moved.top {
        let mut below = Moved { top: Some(top), next: moved.next };
        let emptied = empty(&folder, &mut below, depth + 1);
        moved.next = below.next;
        emptied?;
    } else {
        empty(&folder, &mut Moved { top: Some(&folder), next: 0 }, depth + 1)?;
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Trouble::new("remove the folder", &parent.path_of(name), errno)),
    }
}

/// Removes what is in a folder, until a look finds it empty.
fn empty(folder: &Folder, moved: &mut Moved<'_>, depth: usize) -> Result<(), Trouble> {
    loop {
        let names = some_names(folder)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            remove_name(folder, &name, moved, depth)?;
        }
    }
}

fn some_names(folder: &Folder) -> Result<Vec<OsString>, Trouble> {
    use std::os::unix::ffi::OsStringExt as _;
    let listing = rustix::fs::Dir::read_from(folder).doing("list", folder.path())?;
    let mut names = Vec::new();
    for entry in listing {
        let entry = entry.doing("list", folder.path())?;
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

fn enter(parent: &Folder, name: &OsStr) -> Result<Folder, Trouble> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let path = parent.path_of(name);
    match open_resolved(parent.as_fd(), Path::new(name), flags, resolve) {
        Ok(descriptor) => Ok(Folder::of(descriptor, path)),
        // What the kernel says of a mount point itself.
        Err(Errno::XDEV) => Err(Trouble::new("remove what is mounted at", &path, Errno::BUSY)),
        Err(errno) => Err(Trouble::new("open the folder", &path, errno)),
    }
}

fn move_up(parent: &Folder, name: &OsStr, top: &Folder, next: &mut u64) -> Result<(), Trouble> {
    loop {
        let place = PathBuf::from(format!(".removing-{next}"));
        *next += 1;
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(parent, name, top, &place, flags) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A hostile tree may hold such names already.
            Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(Trouble::new("move up to remove", &parent.path_of(name), errno));
            }
        }
    }
}
