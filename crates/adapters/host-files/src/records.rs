//! The agent's own small records under `<root>/keelson/`, one file each.
//!
//! Rule: a record is complete and on disk when a save returns, and gone from disk when a removal
//! returns. A record that cannot be read is reported and left in place. Knows nothing of its
//! content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host_paths::{Apart, Folder, Links, Settled, Trouble, write_whole};
use ports::pod_host::{HostFuture, LoadedRecords, Records};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::failure::{of_apart, of_trouble};
use crate::folders::{MOST_NAMES, named};

#[cfg(test)]
mod tests;

const LIMIT: Duration = Duration::from_secs(60);
const MOST_CALLS: usize = 8;

/// Larger than any record. The longest is that of a manifest of 10 MiB, in which JSON may write
/// each byte as two.
const LONGEST_RECORD: usize = 21 << 20;

#[derive(Debug, Clone)]
pub struct HostRecords {
    place: Arc<PathBuf>,
    apart: Apart,
}

impl HostRecords {
    /// `root` is the kubelet's root directory.
    pub fn new(root: &Path) -> Self {
        Self::at(&root.join("keelson"))
    }

    /// Directories of records right below `place`.
    pub(crate) fn at(place: &Path) -> Self {
        let place = Arc::new(place.to_owned());
        Self { place, apart: Apart::new("records", MOST_CALLS, LIMIT) }
    }

    /// One record; `None` if it does not exist.
    pub(crate) fn read<'a>(
        &'a self,
        folder: &'a str,
        name: &'a str,
    ) -> HostFuture<'a, Option<Vec<u8>>> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.call("read a record", move |place| read(place, &folder, &name))
    }

    fn call<'a, T, F>(&'a self, what: &'static str, call: F) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Result<T, Trouble> + Send + 'static,
    {
        let place = self.place.clone();
        Box::pin(async move {
            match self.apart.run(move || call(&place)).await {
                Ok(done) => done.map_err(|trouble| of_trouble(&trouble)),
                Err(error) => Err(of_apart(what, &error)),
            }
        })
    }
}

fn open(place: &Path, folder: &str) -> Result<Option<Folder>, Trouble> {
    named(folder, place)?;
    match Folder::open(place).and_then(|place| place.folder(folder)) {
        Ok(folder) => Ok(Some(folder)),
        Err(trouble) if trouble.is_missing() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

fn make(place: &Path, folder: &str) -> Result<Folder, Trouble> {
    if let Some(there) = open(place, folder)? {
        return Ok(there);
    }
    let top = Folder::make(place, 0o700)?;
    let made = top.make_folder(folder, 0o700)?;
    // A record is not durable in a directory that is not.
    top.sync()?;
    if let Some(above) = place.parent() {
        Folder::open(above)?.sync()?;
    }
    Ok(made)
}

fn load(place: &Path, folder: &str) -> Result<LoadedRecords, Trouble> {
    let mut loaded = LoadedRecords::default();
    let Some(folder) = open(place, folder)? else { return Ok(loaded) };
    // No other process writes here: the root is locked by the running agent.
    for name in folder.finished_names(MOST_NAMES)? {
        let Some(text) = name.to_str().filter(|text| !text.starts_with('.')) else {
            loaded
                .unreadable
                .push(format!("{}: not a record's name", folder.path_of(&name).display()));
            continue;
        };
        match folder.read(text, Links::Refused, LONGEST_RECORD) {
            Ok(content) => loaded.records.push((text.to_owned(), content)),
            Err(trouble) if trouble.is_missing() => {}
            Err(trouble) => loaded.unreadable.push(trouble.to_string()),
        }
    }
    Ok(loaded)
}

fn read(place: &Path, folder: &str, name: &str) -> Result<Option<Vec<u8>>, Trouble> {
    named(name, place)?;
    let Some(folder) = open(place, folder)? else { return Ok(None) };
    match folder.read(name, Links::Refused, LONGEST_RECORD) {
        Ok(content) => Ok(Some(content)),
        Err(trouble) if trouble.is_missing() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

fn save(place: &Path, folder: &str, name: &str, content: &[u8]) -> Result<(), Trouble> {
    named(name, place)?;
    let path = || place.join(folder).join(name);
    if name.starts_with('.') {
        return Err(Trouble::refused("save", &path(), "a record's name begins with no dot"));
    }
    if content.len() >= LONGEST_RECORD {
        let why = format!("{} bytes; a record has less than {LONGEST_RECORD}", content.len());
        return Err(Trouble::refused("save", &path(), &why));
    }
    write_whole(&make(place, folder)?, name, content, 0o600, Settled::OnDisk)
}

fn remove(place: &Path, folder: &str, name: &str) -> Result<(), Trouble> {
    named(name, place)?;
    let Some(folder) = open(place, folder)? else { return Ok(()) };
    match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) => folder.sync(),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Trouble::new("remove", &folder.path_of(name), errno)),
    }
}

impl Records for HostRecords {
    fn load<'a>(&'a self, folder: &'a str) -> HostFuture<'a, LoadedRecords> {
        let folder = folder.to_owned();
        self.call("load records", move |place| load(place, &folder))
    }

    fn save<'a>(&'a self, folder: &'a str, name: &'a str, content: Vec<u8>) -> HostFuture<'a, ()> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.call("save a record", move |place| save(place, &folder, &name, &content))
    }

    fn remove<'a>(&'a self, folder: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.call("remove a record", move |place| remove(place, &folder, &name))
    }
}
