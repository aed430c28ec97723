//! The agent's own small records under `<root>/keelson/`, one file each.
//!
//! Rule: a record is complete and on disk when a save returns, and gone from disk when a removal
//! returns. A record that cannot be read is reported and left in place. Knows nothing of its
//! content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host_paths::{BlockingPool, OpenDir, PathError, SymlinkPolicy, WriteDurability, write_whole};
use ports::pod_host::{AgentRecords, HostFuture, LoadedRecords};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::host_error::{from_path_error, from_pool_error};
use crate::pod_dirs::{MAX_NAMES, check_file_name};

#[cfg(test)]
mod tests;

const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_CALLS: usize = 8;

/// Larger than any record. The longest is that of a manifest of 10 MiB, in which JSON may write
/// each byte as two.
const MAX_RECORD_BYTES: usize = 21 << 20;

#[derive(Debug, Clone)]
pub struct HostRecords {
    base_dir: Arc<PathBuf>,
    blocking_pool: BlockingPool,
}

impl HostRecords {
    /// `root` is the kubelet's root directory.
    pub fn new(root: &Path) -> Self {
        Self::at(&root.join("keelson"))
    }

    /// Directories of records right below `base_dir`.
    pub(crate) fn at(base_dir: &Path) -> Self {
        let base_dir = Arc::new(base_dir.to_owned());
        Self { base_dir, blocking_pool: BlockingPool::new("records", MAX_CALLS, CALL_TIMEOUT) }
    }

    /// One record; `None` if it does not exist.
    pub(crate) fn read<'a>(
        &'a self,
        dir: &'a str,
        name: &'a str,
    ) -> HostFuture<'a, Option<Vec<u8>>> {
        let (dir, name) = (dir.to_owned(), name.to_owned());
        self.call("read a record", move |base_dir| read(base_dir, &dir, &name))
    }

    fn call<'a, T, F>(&'a self, what: &'static str, call: F) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Result<T, PathError> + Send + 'static,
    {
        let base_dir = self.base_dir.clone();
        Box::pin(async move {
            match self.blocking_pool.run(move || call(&base_dir)).await {
                Ok(done) => done.map_err(|path_error| from_path_error(&path_error)),
                Err(error) => Err(from_pool_error(what, &error)),
            }
        })
    }
}

fn open(base_dir: &Path, dir: &str) -> Result<Option<OpenDir>, PathError> {
    check_file_name(dir, base_dir)?;
    match OpenDir::open(base_dir).and_then(|base_dir| base_dir.dir(dir)) {
        Ok(dir) => Ok(Some(dir)),
        Err(path_error) if path_error.is_missing() => Ok(None),
        Err(path_error) => Err(path_error),
    }
}

fn make(base_dir: &Path, dir: &str) -> Result<OpenDir, PathError> {
    if let Some(there) = open(base_dir, dir)? {
        return Ok(there);
    }
    let top = OpenDir::make(base_dir, 0o700)?;
    let made = top.make_dir(dir, 0o700)?;
    // A record is not durable in a directory that is not.
    top.sync()?;
    if let Some(above) = base_dir.parent() {
        OpenDir::open(above)?.sync()?;
    }
    Ok(made)
}

fn load(base_dir: &Path, dir: &str) -> Result<LoadedRecords, PathError> {
    let mut loaded = LoadedRecords::default();
    let Some(dir) = open(base_dir, dir)? else { return Ok(loaded) };
    // No other process writes here: the root is locked by the running agent.
    for name in dir.committed_names(MAX_NAMES)? {
        let Some(text) = name.to_str().filter(|text| !text.starts_with('.')) else {
            loaded
                .unreadable
                .push(format!("{}: not a record's name", dir.path_of(&name).display()));
            continue;
        };
        match dir.read(text, SymlinkPolicy::Refused, MAX_RECORD_BYTES) {
            Ok(content) => loaded.records.push((text.to_owned(), content)),
            Err(path_error) if path_error.is_missing() => {}
            Err(path_error) => loaded.unreadable.push(path_error.to_string()),
        }
    }
    Ok(loaded)
}

fn read(base_dir: &Path, dir: &str, name: &str) -> Result<Option<Vec<u8>>, PathError> {
    check_file_name(name, base_dir)?;
    let Some(dir) = open(base_dir, dir)? else { return Ok(None) };
    match dir.read(name, SymlinkPolicy::Refused, MAX_RECORD_BYTES) {
        Ok(content) => Ok(Some(content)),
        Err(path_error) if path_error.is_missing() => Ok(None),
        Err(path_error) => Err(path_error),
    }
}

fn save(base_dir: &Path, dir: &str, name: &str, content: &[u8]) -> Result<(), PathError> {
    check_file_name(name, base_dir)?;
    let path = || base_dir.join(dir).join(name);
    if name.starts_with('.') {
        return Err(PathError::refused("save", &path(), "a record's name begins with no dot"));
    }
    if content.len() >= MAX_RECORD_BYTES {
        let reason = format!("{} bytes; a record has less than {MAX_RECORD_BYTES}", content.len());
        return Err(PathError::refused("save", &path(), &reason));
    }
    write_whole(&make(base_dir, dir)?, name, content, 0o600, WriteDurability::Synced)
}

fn remove(base_dir: &Path, dir: &str, name: &str) -> Result<(), PathError> {
    check_file_name(name, base_dir)?;
    let Some(dir) = open(base_dir, dir)? else { return Ok(()) };
    match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) => dir.sync(),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(PathError::new("remove", &dir.path_of(name), errno)),
    }
}

impl AgentRecords for HostRecords {
    fn load<'a>(&'a self, dir: &'a str) -> HostFuture<'a, LoadedRecords> {
        let dir = dir.to_owned();
        self.call("load records", move |base_dir| load(base_dir, &dir))
    }

    fn save<'a>(&'a self, dir: &'a str, name: &'a str, content: Vec<u8>) -> HostFuture<'a, ()> {
        let (dir, name) = (dir.to_owned(), name.to_owned());
        self.call("save a record", move |base_dir| save(base_dir, &dir, &name, &content))
    }

    fn remove<'a>(&'a self, dir: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        let (dir, name) = (dir.to_owned(), name.to_owned());
        self.call("remove a record", move |base_dir| remove(base_dir, &dir, &name))
    }
}
