//! Atomic file replacement and directory removal, and locks that end with their process.
//!
//! A final name is created in this order: write under another name, sync the file, rename, sync the
//! directory. A tree is first renamed into the trash, so that a kill in the middle leaves no
//! partial tree under a meaningful name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use host_paths::OpenDir;
use rustix::fs::{FlockOperation, RenameFlags, flock, fsync, renameat_with};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, PathContext as _, Result};

#[cfg(test)]
mod tests;

/// Marks the name of an unfinished file; a sweep looks for it.
pub(crate) const UNFINISHED: &str = ".unfinished-";

/// A unique random name.
pub(crate) fn unique(prefix: &str) -> Result<String> {
    let mut bytes = [0_u8; 12];
    getrandom(&mut bytes, GetRandomFlags::empty()).doing("random bytes for", Path::new(prefix))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{prefix}{digits}"))
}

/// Creates a private directory and its missing parents.
pub(crate) fn create_dir(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.doing("creating the directory", path)
}

pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    let dir = File::open(path).doing("opening the directory", path)?;
    fsync(&dir).doing("syncing the directory", path)
}

/// Replaces a file atomically. Durable: the new content survives a power cut.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically(path, bytes)?;
    sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// The same without durability: a power cut soon after may restore the old content.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let beside = dir.join(unique(UNFINISHED)?);
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

/// Renames `from` unless `to` exists. `false`: it existed, and `from` is still there.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<bool> {
    let here = rustix::fs::CWD;
    match renameat_with(here, from, here, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // A file system without the flag: the loser of a race gets an error for a non-empty
        // directory.
        Err(Errno::INVAL) => match fs::rename(from, to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(error).doing("placing", to),
        },
        Err(error) => Err(error).doing("placing", to),
    }
}

/// Removes a file, or a tree of any depth, under an unused name; a missing one is no error.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput)).doing("removing", path);
    };
    let removed = match OpenDir::open(parent) {
        Err(error) if error.is_missing() => Ok(()),
        dir => dir.and_then(|dir| host_paths::remove_tree(&dir, name)),
    };
    removed.map_err(|error| Error::File { what: "removing", path: error.path, cause: error.source })
}

/// The sorted names in a directory; a missing directory is empty.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing("listing", dir)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.doing("listing", dir)?.file_name();
        // Our names are always UTF-8; other files are not ours.
        if let Ok(name) = name.into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A kernel lock; released when dropped or when its process exits.
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

/// Whether no process holds the lock on this path. Requires the store's exclusive lock.
pub(crate) fn is_unlocked(path: &Path) -> Result<bool> {
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

/// Directory of trees that are being removed.
#[derive(Clone, Debug)]
pub(crate) struct Trash(pub(crate) PathBuf);

impl Trash {
    /// Removes the name at once; [`Trash::empty`] deletes the data.
    pub(crate) fn take(&self, path: &Path) -> Result<()> {
        let to = self.0.join(unique("")?);
        match fs::rename(path, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.doing("moving to the trash", path),
        }
    }

    /// Logs an entry that cannot be removed and leaves it for the next time: it is in use by
    /// nothing, and must not fail the caller's removal.
    pub(crate) fn empty(&self) -> Result<()> {
        for name in names_in(&self.0)? {
            if let Err(error) = remove_tree(&self.0.join(name)) {
                tracing::error!(%error, "cannot delete from the trash; retried later");
            }
        }
        Ok(())
    }
}
