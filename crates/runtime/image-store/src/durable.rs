//! Files that appear whole or not at all, folders that are gone at once, and locks that die with
//! their holder.
//!
//! The order that makes a name trustworthy is always: write under another name, sync the file,
//! rename, sync the folder. Removing a tree is a rename into the trash first, so that a kill in the
//! middle leaves nothing half under a name that means something.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use host_paths::Folder;
use rustix::fs::{FlockOperation, RenameFlags, flock, fsync, renameat_with};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Doing as _, Error, Result};

#[cfg(test)]
mod tests;

/// What marks a name as unfinished; sweeping looks for it.
pub(crate) const UNFINISHED: &str = ".unfinished-";

/// A name that nobody else makes.
pub(crate) fn unique(prefix: &str) -> Result<String> {
    let mut bytes = [0_u8; 12];
    getrandom(&mut bytes, GetRandomFlags::empty()).doing("random bytes for", Path::new(prefix))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{prefix}{digits}"))
}

/// Makes a private folder, and its parents, if missing.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.doing("making the folder", path)
}

pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let folder = File::open(path).doing("opening the folder", path)?;
    fsync(&folder).doing("syncing the folder", path)
}

/// Replaces a file's content; readers see the old or the new, never a part. The new is certain to
/// be there after a power cut.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_soon(path, bytes)?;
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// The same, but a power cut soon after may bring the old back.
pub(crate) fn write_soon(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let beside = folder.join(unique(UNFINISHED)?);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .doing("making", &beside)?;
        file.write_all(bytes).doing("writing", &beside)?;
        file.sync_all().doing("syncing", &beside)?;
        fs::rename(&beside, path).doing("placing", path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Gives `from` its final name unless that is taken. `false`: it was, and `from` is still there.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<bool> {
    let here = rustix::fs::CWD;
    match renameat_with(here, from, here, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // A file system without the flag: the loser of a race finds a folder that is not empty.
        Err(Errno::INVAL) => match fs::rename(from, to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(error).doing("placing", to),
        },
        Err(error) => Err(error).doing("placing", to),
    }
}

/// Removes a file, or a tree of any depth, that has no meaningful name; one that is gone is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput)).doing("removing", path);
    };
    let removed = match Folder::open(parent) {
        Err(trouble) if trouble.is_missing() => Ok(()),
        folder => folder.and_then(|folder| host_paths::remove_tree(&folder, name)),
    };
    removed.map_err(|trouble| Error::File {
        what: "removing",
        path: trouble.path,
        cause: trouble.source,
    })
}

/// The entries of a folder by name, sorted; a missing folder is empty.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing("listing", folder)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.doing("listing", folder)?.file_name();
        // A name of ours is always text; whatever else lies here is not ours.
        if let Ok(name) = name.into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A kernel lock; gone when dropped or when its process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn shared(path: &Path) -> Result<Self> {
        Self::take(path, FlockOperation::LockShared)
    }

    pub(crate) fn exclusive(path: &Path) -> Result<Self> {
        Self::take(path, FlockOperation::LockExclusive)
    }

    fn take(path: &Path, operation: FlockOperation) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .doing("opening the lock", path)?;
        lock(&file, operation).doing("locking", path)?;
        Ok(Self { _file: file })
    }
}

pub(crate) fn lock(file: &File, operation: FlockOperation) -> io::Result<()> {
    loop {
        match flock(file, operation) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Whether nobody holds the lock on this file or folder. Ask only under the store's exclusive lock.
pub(crate) fn abandoned(path: &Path) -> Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.doing("opening", path)?,
    };
    match lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error).doing("locking", path),
    }
}

/// Where things that are being removed lie.
#[derive(Clone, Debug)]
pub(crate) struct Trash(pub(crate) PathBuf);

impl Trash {
    /// Takes a name away at once; the bytes go with [`Trash::empty`].
    pub(crate) fn take(&self, path: &Path) -> Result<()> {
        let to = self.0.join(unique("")?);
        match fs::rename(path, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.doing("moving to the trash", path),
        }
    }

    /// What cannot be removed is told and lies here until the next time: it has no meaningful name
    /// any more, and is no reason to refuse anybody else's removal.
    pub(crate) fn empty(&self) -> Result<()> {
        for name in names_in(&self.0)? {
            if let Err(error) = remove_tree(&self.0.join(name)) {
                tracing::error!(%error, "what was removed still takes room: it stays in the trash");
            }
        }
        Ok(())
    }
}
