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

use crate::beneath::{Folder, check_name, open_resolved};
use crate::trouble::{Doing as _, Trouble};

mod loosen;

/// Directories held open at once.
const DEEPEST: usize = 32;

/// Names read of one directory at a time.
const BATCH: usize = 512;

/// How often a directory is emptied while another process fills it, or while its content is being
/// moved up.
const TRIES: usize = 64;

/// Removes `name` in `parent` with all below it. A name that does not exist counts as removed.
pub fn remove_tree(parent: &Folder, name: impl AsRef<OsStr>) -> Result<(), Trouble> {
    let name = name.as_ref();
    check_name(name).map_err(|why| Trouble::refused("remove", &parent.path_of(name), &why))?;
    remove_name(parent, name, &mut Moved { top: None, next: 0 }, 0)
}

/// Where directories from too deep are moved to: the top of the tree.
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
    match unlink(parent, name, AtFlags::empty(), depth) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(Trouble::new("remove", &parent.path_of(name), errno)),
    }
    match unlink(parent, name, AtFlags::REMOVEDIR, depth) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(Trouble::new("remove", &parent.path_of(name), errno)),
    }
    if let Some(top) = moved.top.filter(|_| depth >= DEEPEST) {
        return move_up((parent, name), depth, top, &mut moved.next);
    }
    for _ in 0..TRIES {
        // Opened again each time: the name may have become another directory's.
        let Some(folder) = enter(parent, name)? else { return Ok(()) };
        if let Some(top) = moved.top {
            let mut below = Moved { top: Some(top), next: moved.next };
            let emptied = empty(&folder, &mut below, depth + 1);
            moved.next = below.next;
            emptied?;
        } else {
            empty(&folder, &mut Moved { top: Some(&folder), next: 0 }, depth + 1)?;
        }
        match unlink(parent, name, AtFlags::REMOVEDIR, depth) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => {
                return Err(Trouble::new("remove the directory", &parent.path_of(name), errno));
            }
        }
    }
    Err(Trouble::new("remove the directory", &parent.path_of(name), Errno::NOTEMPTY))
}

/// Removes one name, and first the flags or modes that forbid it.
fn unlink(parent: &Folder, name: &OsStr, flags: AtFlags, depth: usize) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, flags) {
        Err(errno) if loosen::loosen(parent, name, depth, errno) => {
            rustix::fs::unlinkat(parent, name, flags)
        }
        answer => answer,
    }
}

/// Empties a directory, until a listing finds nothing.
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
    let listing = match rustix::fs::Dir::read_from(folder) {
        // Another process has removed it.
        Err(Errno::NOENT) => return Ok(Vec::new()),
        listing => listing.doing("list", folder.path())?,
    };
    let mut names = Vec::new();
    for entry in listing {
        let entry = match entry {
            Err(Errno::NOENT) => break,
            entry => entry.doing("list", folder.path())?,
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
fn enter(parent: &Folder, name: &OsStr) -> Result<Option<Folder>, Trouble> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let path = parent.path_of(name);
    let open = || open_resolved(parent.as_fd(), Path::new(name), flags, resolve);
    let opened = match open() {
        Err(Errno::ACCESS) if loosen::let_in(parent, name) => open(),
        opened => opened,
    };
    match opened {
        Ok(descriptor) => Ok(Some(Folder::of(descriptor, path))),
        Err(Errno::NOENT) => Ok(None),
        // The kernel's error for a mount point itself.
        Err(Errno::XDEV) => Err(Trouble::new("remove what is mounted at", &path, Errno::BUSY)),
        Err(errno) => Err(Trouble::new("open the directory", &path, errno)),
    }
}

fn move_up(
    (parent, name): (&Folder, &OsStr),
    depth: usize,
    top: &Folder,
    next: &mut u64,
) -> Result<(), Trouble> {
    loop {
        let place = PathBuf::from(format!(".removing-{next}"));
        *next += 1;
        let rename = || {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(parent, name, top, &place, flags)
        };
        let renamed = match rename() {
            Err(errno) if loosen::loosen(parent, name, depth, errno) => rename(),
            renamed => renamed,
        };
        match renamed {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A hostile tree may contain such names already.
            Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(Trouble::new("move up to remove", &parent.path_of(name), errno));
            }
        }
    }
}
