//! Unpacked layers by chain id, each a directory that overlayfs can stack.
//!
//! A snapshot under its chain id is complete: it was unpacked under another name, the digest of its
//! tar was verified, it was fitted to the layers below, synced, and then renamed. An unfinished one
//! is locked by its process; without a lock it is swept.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::durable::{
    Lock, Trash, UNFINISHED, abandoned, lock, make_folder, names_in, remove_tree, rename_new,
    sync_folder, unique,
};
use crate::error::{Doing as _, Error, Result};
use crate::unpack::Unpacked;
use crate::usage::Usage;

pub(crate) mod settle;

const RECORD: &str = "snapshot.json";
const VERSION: u32 = 1;

/// The record beside the files of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) version: u32,
    pub(crate) parent: Option<Digest>,
    pub(crate) diff_id: Digest,
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    folder: PathBuf,
    store_lock: PathBuf,
}

impl Snapshots {
    pub(crate) fn open(root: &Path, store_lock: &Path) -> Result<Self> {
        let folder = root.join("snapshots");
        make_folder(&folder)?;
        Ok(Self { folder, store_lock: store_lock.to_owned() })
    }

    /// The files of a layer.
    pub(crate) fn files(&self, chain: &Digest) -> PathBuf {
        self.place_of(chain).join("fs")
    }

    /// The directory that contains them and the record.
    pub(crate) fn place_of(&self, chain: &Digest) -> PathBuf {
        self.folder.join(chain.hex())
    }

    pub(crate) fn has(&self, chain: &Digest) -> bool {
        self.place_of(chain).is_dir()
    }

    pub(crate) fn record(&self, chain: &Digest) -> Result<SnapshotRecord> {
        let path = self.place_of(chain).join(RECORD);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::SnapshotMissing(*chain));
            }
            other => other.doing("reading", &path)?,
        };
        let record: SnapshotRecord =
            serde_json::from_slice(&bytes).map_err(|error| Error::damaged(&path, error))?;
        if record.version != VERSION {
            let found = record.version.to_string();
            return Err(Error::UnknownVersion { path, found, expected: VERSION });
        }
        Ok(record)
    }

    pub(crate) fn list(&self) -> Result<Vec<Digest>> {
        Ok(names_in(&self.folder)?.iter().filter_map(|name| Digest::from_hex(name)).collect())
    }

    /// Creates a directory to unpack into, under an unfinished name.
    pub(crate) fn begin(&self) -> Result<Making> {
        let path = self.folder.join(unique(UNFINISHED)?);
        // Under the shared lock, so that a sweep never sees the directory without its lock.
        let _held = Lock::shared(&self.store_lock)?;
        make_folder(&path.join("fs"))?;
        let held = File::open(&path).doing("opening", &path)?;
        lock(&held, FlockOperation::LockExclusive).doing("locking", &path)?;
        let making = Making { path, _held: held, placed: false, unpacked: Unpacked::default() };
        // Containers see the tree's root; only the directory around it is private.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(making.files(), open).doing("mode of", &making.files())?;
        Ok(making)
    }

    /// Renames synced snapshots to their chain ids, the lowest first. If another process has placed
    /// one, ours is dropped.
    pub(crate) fn place(&self, made: Vec<(Digest, Making)>) -> Result<()> {
        for (chain, mut making) in made {
            making.placed = rename_new(&making.path, &self.folder.join(chain.hex()))?;
        }
        sync_folder(&self.folder)
    }

    pub(crate) fn discard(&self, chain: &Digest, trash: &Trash) -> Result<()> {
        trash.take(&self.place_of(chain))
    }

    /// Removes unfinished snapshots without a process. Requires the store's exclusive lock.
    pub(crate) fn sweep(&self, trash: &Trash) -> Result<u64> {
        let mut removed = 0;
        for name in names_in(&self.folder)? {
            let path = self.folder.join(&name);
            if name.starts_with(UNFINISHED) && abandoned(&path)? {
                trash.take(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        let mut usage = Usage::default();
        for chain in self.list()? {
            usage += self.record(&chain)?.usage;
        }
        Ok(usage)
    }

    /// Syncs all writes to the disk; one call for all layers of an image.
    pub(crate) fn sync(&self) -> Result<()> {
        let folder = File::open(&self.folder).doing("opening", &self.folder)?;
        rustix::fs::syncfs(&folder).doing("syncing", &self.folder)
    }
}

/// A snapshot being unpacked; removed when dropped before it is placed.
pub(crate) struct Making {
    path: PathBuf,
    _held: File,
    placed: bool,
    pub(crate) unpacked: Unpacked,
}

impl Making {
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join("fs")
    }

    pub(crate) fn write_record(&self, parent: Option<Digest>, diff_id: Digest) -> Result<()> {
        let usage = Usage::of_tree(&self.files())?;
        let record = SnapshotRecord { version: VERSION, parent, diff_id, usage };
        let path = self.path.join(RECORD);
        let bytes = serde_json::to_vec(&record).map_err(|error| Error::damaged(&path, error))?;
        fs::write(&path, bytes).doing("writing", &path)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.placed {
            // Leftovers are swept later.
            let _ = remove_tree(&self.path);
        }
    }
}
