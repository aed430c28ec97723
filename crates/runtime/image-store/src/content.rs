//! Blobs by digest: stored once, verified on arrival, resumed after an interruption.
//!
//! A blob in `blobs/sha256` is complete and matched its digest when it was placed. Incoming content
//! is in `ingest`: named by its digest if that is known in advance (a later attempt then resumes
//! it), otherwise by a random name. One ingest per digest at a time: a second one waits and then
//! finds the blob, or, if the first makes too little progress, receives it into its own file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::digest::{Digest, Hasher};
use crate::durable::{Lock, is_unlocked, lock, names_in, sync_dir, unique};
use crate::error::{Error, PathContext as _, Result};
use crate::limits::Limits;

mod receive_lock;

#[cfg(test)]
mod tests;

/// The blobs of a store. A blob that no image uses may be garbage-collected at any time;
/// [`crate::ImageStore::assemble`] protects the blobs that it adds.
#[derive(Clone, Debug)]
pub struct ContentStore {
    blobs: PathBuf,
    ingests: PathBuf,
    store_lock: PathBuf,
    limit: u64,
    timeout: std::time::Duration,
}

/// Result of [`ContentStore::begin`].
#[derive(Debug)]
pub enum IngestStart {
    /// The content is complete in the store already.
    Present,
    /// Write the bytes from [`Ingest::offset`] on, then commit.
    Ingest(Box<Ingest>),
}

impl ContentStore {
    pub(crate) fn open(root: &Path, store_lock: &Path, limits: &Limits) -> Result<Self> {
        let blobs = root.join("content/blobs/sha256");
        let ingests = root.join("content/ingest");
        crate::durable::create_dir(&blobs)?;
        crate::durable::create_dir(&ingests)?;
        Ok(Self {
            blobs,
            ingests,
            store_lock: store_lock.to_owned(),
            limit: limits.blob_bytes,
            timeout: limits.wait_timeout,
        })
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    /// The size of a complete blob.
    pub fn size(&self, digest: &Digest) -> Result<Option<u64>> {
        let path = self.path(digest);
        match fs::symlink_metadata(&path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing("reading the metadata of", &path),
        }
    }

    pub fn open_blob(&self, digest: &Digest) -> Result<File> {
        let path = self.path(digest);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::ContentMissing(*digest))
            }
            other => other.doing("opening", &path),
        }
    }

    /// Reads a small document (a manifest, a configuration) and verifies its digest on each read,
    /// because decisions depend on it.
    pub fn read_document(&self, digest: &Digest, limit: u64) -> Result<Vec<u8>> {
        let size = self.size(digest)?.ok_or(Error::ContentMissing(*digest))?;
        Limits::check(|| format!("document {digest}: bytes"), size, limit)?;
        let mut bytes = Vec::new();
        let blob = self.open_blob(digest)?;
        blob.take(limit + 1).read_to_end(&mut bytes).doing("reading", &self.path(digest))?;
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(Error::damaged(&self.path(digest), format!("its digest is {found}")));
        }
        Ok(bytes)
    }

    /// All complete blobs with their sizes.
    pub fn list(&self) -> Result<Vec<(Digest, u64)>> {
        let mut found = Vec::new();
        for name in names_in(&self.blobs)? {
            if let Some(digest) = Digest::from_hex(&name)
                && let Some(size) = self.size(&digest)?
            {
                found.push((digest, size));
            }
        }
        Ok(found)
    }

    /// Starts or resumes an ingest with known digest and size. Waits while another process or
    /// thread receives the same content and makes progress.
    pub fn begin(&self, digest: &Digest, size: u64) -> Result<IngestStart> {
        Limits::check(|| format!("content {digest}: bytes"), size, self.limit)?;
        let path = self.ingests.join(digest.hex());
        loop {
            match self.size(digest)? {
                Some(found) if found == size => return Ok(IngestStart::Present),
                Some(found) => {
                    return Err(Error::document(
                        format!("content {digest}"),
                        format!("is announced with {size} bytes but is stored with {found}"),
                    ));
                }
                None => {}
            }
            let file = open_partial(&path)?;
            let expected = ExpectedContent { digest: *digest, size };
            if !receive_lock::take(&file, &path, size, self.timeout)? {
                return Ok(IngestStart::Ingest(Box::new(self.begin_unshared(Some(expected))?)));
            }
            // The previous holder of the lock may have renamed or removed the file: then the one
            // that we hold open is no longer at this path, and we try again.
            if is_file_at(&file, &path)? {
                let ingest = Ingest::resume(self, file, path, expected)?;
                return Ok(IngestStart::Ingest(Box::new(ingest)));
            }
        }
    }

    /// Starts an ingest whose digest is known only at the end.
    pub fn begin_without_digest(&self) -> Result<Ingest> {
        self.begin_unshared(None)
    }

    /// Starts an ingest under a random name, which no other receiver waits for or resumes; it is
    /// removed if it is not committed.
    fn begin_unshared(&self, expected: Option<ExpectedContent>) -> Result<Ingest> {
        let path = self.ingests.join(unique(crate::durable::UNFINISHED)?);
        // Under the store's shared lock, so that a sweep never sees the file before it is locked.
        let _held = Lock::shared(&self.store_lock)?;
        let file = open_partial(&path)?;
        lock(&file, FlockOperation::LockExclusive).doing("locking", &path)?;
        Ok(Ingest {
            file,
            path,
            blobs: self.blobs.clone(),
            hasher: Hasher::default(),
            offset: 0,
            limit: expected.map_or(self.limit, |expected| expected.size),
            expected,
            resumable: false,
            finished: false,
        })
    }

    /// Stores bytes from memory.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        match self.begin(&digest, bytes.len() as u64)? {
            IngestStart::Present => {}
            IngestStart::Ingest(mut ingest) => {
                let rest = usize::try_from(ingest.offset()).unwrap_or(bytes.len());
                ingest.receive(&bytes[rest.min(bytes.len())..])?;
                ingest.commit()?;
            }
        }
        Ok(digest)
    }

    pub(crate) fn remove(&self, digest: &Digest) -> Result<()> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.doing("removing", &path),
        }
    }

    /// Removes abandoned ingests: those without a digest at once, resumable ones once they are
    /// older than `max_age`. Requires the store's exclusive lock.
    pub(crate) fn sweep(&self, max_age: std::time::Duration) -> Result<u64> {
        let mut removed = 0;
        for name in names_in(&self.ingests)? {
            let path = self.ingests.join(&name);
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
            let resumable = Digest::from_hex(&name)
                .is_some_and(|digest| !self.path(&digest).exists())
                && age.is_none_or(|age| age < max_age);
            if !resumable && is_unlocked(&path)? {
                fs::remove_file(&path).doing("removing", &path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn open_partial(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .doing("opening", path)
}

fn is_file_at(file: &File, path: &Path) -> Result<bool> {
    let ours = file.metadata().doing("reading the metadata of", path)?;
    Ok(fs::symlink_metadata(path)
        .is_ok_and(|at_path| at_path.ino() == ours.ino() && at_path.dev() == ours.dev()))
}

#[derive(Clone, Copy, Debug)]
struct ExpectedContent {
    digest: Digest,
    size: u64,
}

/// Incoming content. When it is dropped without a commit, content with a known digest stays for a
/// later attempt; other content is removed.
pub struct Ingest {
    file: File,
    path: PathBuf,
    blobs: PathBuf,
    hasher: Hasher,
    offset: u64,
    limit: u64,
    expected: Option<ExpectedContent>,
    /// Named by its digest, so that a later attempt finds it.
    resumable: bool,
    finished: bool,
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Ingest({} at {})", self.path.display(), self.offset)
    }
}

impl Ingest {
    fn resume(
        content: &ContentStore,
        file: File,
        path: PathBuf,
        expected: ExpectedContent,
    ) -> Result<Self> {
        let mut ingest = Self {
            file,
            path,
            blobs: content.blobs.clone(),
            hasher: Hasher::default(),
            offset: 0,
            limit: expected.size,
            expected: Some(expected),
            resumable: true,
            finished: false,
        };
        let mut buffer = vec![0; 128 << 10];
        loop {
            let read = ingest.file.read(&mut buffer).doing("reading", &ingest.path)?;
            if read == 0 {
                break;
            }
            ingest.hasher.update(&buffer[..read]);
            ingest.offset += read as u64;
        }
        if ingest.offset > expected.size {
            ingest.start_over()?;
        }
        Ok(ingest)
    }

    fn start_over(&mut self) -> Result<()> {
        self.file.set_len(0).doing("truncating", &self.path)?;
        self.file.seek(SeekFrom::Start(0)).doing("rewinding", &self.path)?;
        self.hasher = Hasher::default();
        self.offset = 0;
        Ok(())
    }

    /// How many bytes were received; the next write continues after them.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends bytes. Fails at once when the content exceeds its expected size.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.offset.saturating_add(bytes.len() as u64);
        if end > self.limit {
            return Err(match self.expected {
                Some(ExpectedContent { digest, size }) => {
                    self.discard();
                    Error::TooLong { digest, expected: size }
                }
                None => {
                    let what = "content from an archive: bytes".to_owned();
                    Error::Limit { what, found: end, limit: self.limit }
                }
            });
        }
        self.file.write_all(bytes).doing("writing", &self.path)?;
        self.hasher.update(bytes);
        self.offset = end;
        Ok(())
    }

    /// Receives a whole stream and reports its offset to `on_progress`. `map_error` converts a read
    /// error; bytes that arrived before the error stay.
    pub fn receive_all(
        &mut self,
        mut from: impl Read,
        mut on_progress: impl FnMut(u64),
        map_error: impl FnOnce(&io::Error) -> Error,
    ) -> Result<()> {
        let mut buffer = vec![0; 128 << 10];
        loop {
            let read = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(map_error(&error)),
                Ok(read) => read,
            };
            if read == 0 {
                return Ok(());
            }
            self.receive(&buffer[..read])?;
            on_progress(self.offset);
        }
    }

    /// Verifies and syncs the content, and renames it to its digest.
    pub fn commit(mut self) -> Result<(Digest, u64)> {
        if let Some(ExpectedContent { digest, size }) = self.expected
            && self.offset < size
        {
            return Err(Error::Truncated { digest, received: self.offset, expected: size });
        }
        let found = std::mem::take(&mut self.hasher).finish();
        if let Some(ExpectedContent { digest, .. }) = self.expected
            && digest != found
        {
            // No part of it can be trusted; the next attempt starts from the beginning.
            self.discard();
            return Err(Error::DigestMismatch { expected: digest, found });
        }
        self.file.sync_all().doing("syncing", &self.path)?;
        let blob = self.blobs.join(found.hex());
        // A blob that another process has stored meanwhile has the same bytes.
        fs::rename(&self.path, &blob).doing("renaming to", &blob)?;
        self.finished = true;
        sync_dir(&self.blobs)?;
        Ok((found, self.offset))
    }

    /// Removes the partial content.
    pub fn discard(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.finished = true;
    }
}

impl Write for Ingest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.receive(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if !self.finished && !self.resumable {
            let _ = fs::remove_file(&self.path);
        }
    }
}
