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
    Lock, Trash, UNFINISHED, create_dir, is_unlocked, lock, names_in, remove_tree, rename_new,
    sync_dir, unique,
};
use crate::error::{Error, PathContext as _, Result};
use crate::unpack::Unpacked;
use crate::usage::Usage;

pub(crate) mod fit_to_lower_layers;

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
    dir: PathBuf,
    store_lock: PathBuf,
}

impl Snapshots {
    pub(crate) fn open(root: &Path, store_lock: &Path) -> Result<Self> {
        let dir = root.join("snapshots");
        create_dir(&dir)?;
        Ok(Self { dir, store_lock: store_lock.to_owned() })
    }

    /// The files of a layer.
    pub(crate) fn files(&self, chain: &Digest) -> PathBuf {
        self.dir_of(chain).join("fs")
    }

    /// The directory that contains them and the record.
    pub(crate) fn dir_of(&self, chain: &Digest) -> PathBuf {
        self.dir.join(chain.hex())
    }

    pub(crate) fn has(&self, chain: &Digest) -> bool {
        self.dir_of(chain).is_dir()
    }

    pub(crate) fn record(&self, chain: &Digest) -> Result<SnapshotRecord> {
        let path = self.dir_of(chain).join(RECORD);
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
        Ok(names_in(&self.dir)?.iter().filter_map(|name| Digest::from_hex(name)).collect())
    }

    /// Creates a directory to unpack into, under an unfinished name.
    pub(crate) fn begin(&self) -> Result<UnpackingSnapshot> {
        let path = self.dir.join(unique(UNFINISHED)?);
        // Under the shared lock, so that a sweep never sees the directory without its lock.
        let _held = Lock::shared(&self.store_lock)?;
        create_dir(&path.join("fs"))?;
        let held = File::open(&path).doing("opening", &path)?;
        lock(&held, FlockOperation::LockExclusive).doing("locking", &path)?;
        let unpacking = UnpackingSnapshot {
            path,
            _held: held,
            published: false,
            unpacked: Unpacked::default(),
        };
        // Containers see the tree's root; only the directory around it is private.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(unpacking.files(), open).doing("mode of", &unpacking.files())?;
        Ok(unpacking)
    }

    /// Renames synced snapshots to their chain ids, the lowest first. If another process has placed
    /// one, ours is dropped.
    pub(crate) fn publish(&self, made: Vec<(Digest, UnpackingSnapshot)>) -> Result<()> {
        for (chain, mut unpacking) in made {
            unpacking.published = rename_new(&unpacking.path, &self.dir.join(chain.hex()))?;
        }
        sync_dir(&self.dir)
    }

    pub(crate) fn discard(&self, chain: &Digest, trash: &Trash) -> Result<()> {
        trash.take(&self.dir_of(chain))
    }

    /// Removes unfinished snapshots without a process. Requires the store's exclusive lock.
    pub(crate) fn sweep(&self, trash: &Trash) -> Result<u64> {
        let mut removed = 0;
        for name in names_in(&self.dir)? {
            let path = self.dir.join(&name);
            if name.starts_with(UNFINISHED) && is_unlocked(&path)? {
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
        let dir = File::open(&self.dir).doing("opening", &self.dir)?;
        rustix::fs::syncfs(&dir).doing("syncing", &self.dir)
    }
}

/// A snapshot being unpacked; removed when dropped before it is placed.
pub(crate) struct UnpackingSnapshot {
    path: PathBuf,
    _held: File,
    published: bool,
    pub(crate) unpacked: Unpacked,
}

impl UnpackingSnapshot {
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

impl Drop for UnpackingSnapshot {
    fn drop(&mut self) {
        if !self.published {
            // Leftovers are swept later.
            let _ = remove_tree(&self.path);
        }
    }
}
