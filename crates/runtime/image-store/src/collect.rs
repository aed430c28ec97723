//! Garbage collection, cleanup after killed processes, and verification.
//!
//! Content and snapshots are used by image records, leases and running sessions. A collection
//! decides under the store's exclusive lock and removes the names at once; the data is deleted
//! afterwards. A sweep removes unfinished files without an owner. Complete but unused content may
//! let an interrupted pull resume: it stays until the next collection, or for a day.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::digest::{Digest, HashingReader};
use crate::durable::{Lock, UNFINISHED, names_in};
use crate::error::{Error, PathContext as _, Result};
use crate::index::StoredImage;
use crate::session::protected;
use crate::store::ImageStore;

/// What a collection removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub blobs: u64,
    pub blob_bytes: u64,
    pub snapshots: u64,
}

/// Unfinished work of killed processes that a sweep removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub ingests: u64,
    pub snapshots: u64,
    pub views: u64,
    pub files: u64,
    /// Complete, but unused for long.
    pub unused: u64,
}

/// How much to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// File names and sizes.
    Quick,
    /// Also hashes all content again.
    Full,
}

/// A defect that verification found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreDefect {
    #[error("image {image} lacks content {blob}")]
    BlobMissing { image: Digest, blob: Digest },
    #[error("content {blob} has {found} bytes; image {image} says {expected}")]
    BlobSize { image: Digest, blob: Digest, found: u64, expected: u64 },
    #[error("content {blob} has other bytes: their digest is {found}")]
    BlobDigest { blob: Digest, found: Digest },
    #[error("image {image} lacks snapshot {chain}")]
    SnapshotMissing { image: Digest, chain: Digest },
    #[error("snapshot {chain}: {reason}")]
    Snapshot { chain: Digest, reason: String },
    #[error("view {view} lacks snapshot {chain}")]
    Lease { view: String, chain: Digest },
}

/// Everything that must be kept.
struct UsedContent {
    blobs: BTreeSet<Digest>,
    chain_ids: BTreeSet<Digest>,
}

impl ImageStore {
    /// Removes content and snapshots that no image, view or running session uses.
    pub fn collect(&self) -> Result<Collected> {
        self.collect_where(|_, _| true)
    }

    /// The same, limited to these blobs.
    pub(crate) fn collect_blobs(&self, blobs: &BTreeSet<Digest>) -> Result<Collected> {
        self.collect_where(|digest, _| blobs.contains(digest))
    }

    /// After a failed pull: where the source broke off, received content stays for the next
    /// attempt. Everything else is removed, and so are old leftovers of earlier attempts.
    pub(crate) fn collect_after(
        &self,
        error: &Error,
        protected: &BTreeSet<Digest>,
    ) -> Result<Collected> {
        let passing = matches!(error, Error::Source { .. } | Error::Truncated { .. });
        self.collect_where(|digest, path| {
            (!passing && protected.contains(digest)) || self.is_expired(path)
        })
    }

    /// Whether a file or directory is older than the time in which an interrupted pull may resume.
    fn is_expired(&self, path: &Path) -> bool {
        let touched = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        let age = touched.ok().and_then(|time| time.elapsed().ok());
        age.is_some_and(|age| age >= self.limits.partial_age)
    }

    fn collect_where(&self, is_candidate: impl Fn(&Digest, &Path) -> bool) -> Result<Collected> {
        let mut collected = Collected::default();
        {
            let _held = Lock::exclusive(&self.lock())?;
            let used_content = self.used_content()?;
            for (digest, bytes) in self.content.list()? {
                if !used_content.blobs.contains(&digest)
                    && is_candidate(&digest, &self.content.path(&digest))
                {
                    self.content.remove(&digest)?;
                    collected.blobs += 1;
                    collected.blob_bytes += bytes;
                }
            }
            for chain in self.snapshots.list()? {
                if !used_content.chain_ids.contains(&chain)
                    && is_candidate(&chain, &self.snapshots.dir_of(&chain))
                {
                    self.snapshots.discard(&chain, &self.trash)?;
                    collected.snapshots += 1;
                }
            }
        }
        self.trash.empty()?;
        Ok(collected)
    }

    /// Requires the exclusive lock.
    fn used_content(&self) -> Result<UsedContent> {
        let under_way = protected(&self.sessions())?;
        let mut used_content = UsedContent { blobs: under_way.clone(), chain_ids: under_way };
        for record in self.images()? {
            used_content.blobs.extend(record.blobs.keys());
            used_content.chain_ids.extend(record.chain_ids());
        }
        for id in self.leases.list()? {
            if let Some(lease) = self.leases.read(&id)? {
                used_content.chain_ids.extend(lease.chain_ids);
            }
        }
        Ok(used_content)
    }

    /// Cleans up after killed processes. Call it at startup; safe at any time.
    pub fn sweep(&self) -> Result<Swept> {
        let mut swept = Swept::default();
        {
            let _held = Lock::exclusive(&self.lock())?;
            protected(&self.sessions())?;
            swept.ingests = self.content.sweep(self.limits.partial_age)?;
            swept.snapshots = self.snapshots.sweep(&self.trash)?;
            for id in names_in(&self.views())? {
                if self.leases.read(&id)?.is_none() {
                    self.trash.take(&self.views().join(&id))?;
                    swept.views += 1;
                }
            }
            swept.files += self.sweep_files(&self.root.join("leases"))?;
        }
        {
            // Writers of the index hold only its own lock.
            let _held = Lock::exclusive(&self.root.join("images.lock"))?;
            swept.files += self.sweep_files(&self.root)?;
        }
        let Collected { blobs, snapshots, .. } =
            self.collect_where(|_, path| self.is_expired(path))?;
        swept.unused = blobs + snapshots;
        Ok(swept)
    }

    fn sweep_files(&self, dir: &Path) -> Result<u64> {
        let mut removed = 0;
        for name in names_in(dir)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
            let path = dir.join(name);
            fs::remove_file(&path).doing("removing", &path)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Checks that everything that images and views need is present and correct.
    pub fn verify(&self, thoroughness: Thoroughness) -> Result<Vec<StoreDefect>> {
        let _held = Lock::shared(&self.lock())?;
        let mut defects = Vec::new();
        for record in self.images()? {
            self.verify_image(&record, &mut defects)?;
        }
        for id in self.leases.list()? {
            let lease = self.leases.read(&id)?;
            for chain in lease.into_iter().flat_map(|lease| lease.chain_ids) {
                if !self.snapshots.has(&chain) {
                    defects.push(StoreDefect::Lease { view: id.clone(), chain });
                }
            }
        }
        for chain in self.snapshots.list()? {
            if let Err(error) = self.verify_snapshot(&chain) {
                defects.push(StoreDefect::Snapshot { chain, reason: error.to_string() });
            }
        }
        if thoroughness == Thoroughness::Full {
            for (blob, _) in self.content.list()? {
                let mut reader = HashingReader::new(self.content.open_blob(&blob)?);
                std::io::copy(&mut reader, &mut std::io::sink())
                    .doing("reading", &self.content.path(&blob))?;
                let found = reader.finish();
                if found != blob {
                    defects.push(StoreDefect::BlobDigest { blob, found });
                }
            }
        }
        Ok(defects)
    }

    fn verify_image(&self, record: &StoredImage, defects: &mut Vec<StoreDefect>) -> Result<()> {
        let image = record.id;
        for (blob, expected) in &record.blobs {
            let (blob, expected) = (*blob, *expected);
            match self.content.size(&blob)? {
                None => defects.push(StoreDefect::BlobMissing { image, blob }),
                Some(found) if found != expected => {
                    defects.push(StoreDefect::BlobSize { image, blob, found, expected });
                }
                Some(_) => {}
            }
        }
        for chain in record.chain_ids() {
            if !self.snapshots.has(&chain) {
                defects.push(StoreDefect::SnapshotMissing { image, chain });
            }
        }
        Ok(())
    }

    /// Its record can be read and matches its parent, and its files are in a directory.
    fn verify_snapshot(&self, chain: &Digest) -> Result<()> {
        let record = self.snapshots.record(chain)?;
        let place = self.snapshots.files(chain);
        if Digest::chain(record.parent.as_ref(), &record.diff_id) != *chain {
            return Err(Error::damaged(&place, "its record belongs to another snapshot"));
        }
        if !fs::symlink_metadata(&place).doing("looking at", &place)?.is_dir() {
            return Err(Error::damaged(&place, "is not a directory"));
        }
        Ok(())
    }
}
