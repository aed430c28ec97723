//! Protects what a running operation uses from garbage collection.
//!
//! A session is a file with a kernel lock: it is valid exactly as long as its process lives. The
//! order makes it safe: first record what will be used (under the store's shared lock), then check
//! whether it exists. A collection takes the store's lock exclusively, reads all sessions, and only
//! then removes.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::digest::Digest;
use crate::durable::{Lock, is_unlocked, lock, names_in, unique};
use crate::error::{PathContext as _, Result};

#[derive(Debug)]
pub(crate) struct StoreSession {
    path: PathBuf,
    store_lock: PathBuf,
    file: fs::File,
}

impl StoreSession {
    pub(crate) fn begin(dir: &Path, store_lock: &Path) -> Result<Self> {
        let path = dir.join(unique("")?);
        let _held = Lock::shared(store_lock)?;
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .doing("making the session", &path)?;
        lock(&file, FlockOperation::LockExclusive).doing("locking", &path)?;
        Ok(Self { path, store_lock: store_lock.to_owned(), file })
    }

    /// Protects content, diff ids and chain ids until the session ends.
    pub(crate) fn protect(&self, digests: &[Digest]) -> Result<()> {
        let _held = Lock::shared(&self.store_lock)?;
        let lines: String = digests.iter().map(|digest| format!("{}\n", digest.hex())).collect();
        (&self.file).write_all(lines.as_bytes()).doing("writing", &self.path)
    }
}

impl Drop for StoreSession {
    fn drop(&mut self) {
        // The lock ends with the file; a leftover file is swept.
        let _ = fs::remove_file(&self.path);
    }
}

/// Everything that live sessions protect; removes dead ones. Requires the exclusive lock.
pub(crate) fn protected(dir: &Path) -> Result<BTreeSet<Digest>> {
    let mut found = BTreeSet::new();
    for name in names_in(dir)? {
        let path = dir.join(name);
        if is_unlocked(&path)? {
            let _ = fs::remove_file(&path);
            continue;
        }
        // A session may end after the listing; then it protects nothing.
        if let Ok(text) = fs::read_to_string(&path) {
            found.extend(text.lines().filter_map(Digest::from_hex));
        }
    }
    Ok(found)
}
