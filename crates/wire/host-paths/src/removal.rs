//! Removing a tree that others have filled.
//!
//! Rule: no symlink is followed and no mount is crossed: at a mount the removal stops with an error
//! and what is mounted stays as it is. A tree of any depth is removed with few descriptors: what
//! lies too deep is first moved up. Several may remove the same tree at once.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::beneath::{Folder, check_name, open_resolved};
use crate::trouble::{Doing as _, Trouble};

mod loosen;

/// Folders held open at once.
const DEEPEST: usize = 32;

/// Names read of one folder at a time.
const BATCH: usize = 512;

/// How often a folder is emptied that somebody else fills, or empties by moving up what is in it.
const TRIES: usize = 64;

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
        // Anew each time: the name may have become another folder's.
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
                return Err(Trouble::new("remove the folder", &parent.path_of(name), errno));
            }
        }
    }
    Err(Trouble::new("remove the folder", &parent.path_of(name), Errno::NOTEMPTY))
}

/// Takes one name away, and first what forbids that.
fn unlink(parent: &Folder, name: &OsStr, flags: AtFlags, depth: usize) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, flags) {
        Err(errno) if loosen::loosen(parent, name, depth, errno) => {
            rustix::fs::unlinkat(parent, name, flags)
        }
        answer => answer,
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
    let listing = match rustix::fs::Dir::read_from(folder) {
        // Somebody else has removed it.
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

/// None where somebody else has removed it.
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
        // What the kernel says of a mount point itself.
        Err(Errno::XDEV) => Err(Trouble::new("remove what is mounted at", &path, Errno::BUSY)),
        Err(errno) => Err(Trouble::new("open the folder", &path, errno)),
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
            // A hostile tree may hold such names already.
            Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(Trouble::new("move up to remove", &parent.path_of(name), errno));
            }
        }
    }
}
