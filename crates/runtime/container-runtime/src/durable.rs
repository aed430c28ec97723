//! Records on disk: one file each, complete or absent.
//!
//! A file begins with a line that names its kind and version; a protobuf message follows. Files are
//! written under another name and renamed, so after a kill there is either the old or the new one.
//! What a power failure may do is chosen per record ([`Durability`]), since an fsync would be most
//! of the cost of a container's start. A file of a newer version is refused with an error; a
//! corrupt file is set aside and logged, so that one bad record does not keep the server from
//! serving all other pods.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::{CallContext as _, CriError, Result};
use crate::identity;

#[cfg(test)]
mod tests;

const UNFINISHED: &str = ".unfinished-";
const UNREADABLE: &str = ".spoiled-";
/// No valid record is larger.
const MAX_SIZE: u64 = 64 << 20;

/// What a power failure may do to a file that was just written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Corrupt it: what it describes does not outlive a power failure either.
    SurvivesKills,
    /// Bring the previous version back.
    OldOrNew,
    /// Nothing: it is on disk before the caller goes on.
    Synced,
}

/// A record in a directory of records.
pub(crate) trait PersistentRecord: prost::Message + Default {
    const KIND: &'static str;
    const VERSION: u32;

    /// The durability that this record needs.
    fn durability(&self) -> Durability;
}

/// A directory of records of one kind.
#[derive(Debug, Clone)]
pub(crate) struct RecordDir {
    dir: PathBuf,
}

/// The result of reading a whole directory.
#[derive(Debug)]
pub(crate) struct RecordDirContents<T> {
    pub records: Vec<(String, T)>,
    /// Records that were corrupt and set aside, as messages.
    pub unreadable: Vec<String>,
}

impl RecordDir {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        make_dir(dir)?;
        for entry in names_in(dir)? {
            if entry.starts_with(UNFINISHED) {
                remove_file(&dir.join(entry))?;
            }
        }
        Ok(Self { dir: dir.to_owned() })
    }

    pub(crate) fn put<T: PersistentRecord>(&self, id: &str, record: &T) -> Result<()> {
        let mut bytes = format!("keelson {} {}\n", T::KIND, T::VERSION).into_bytes();
        record
            .encode(&mut bytes)
            .map_err(|error| CriError::plain(format!("the record of {id}: {error}")))?;
        write_with_durability(&self.dir.join(id), &bytes, record.durability())
    }

    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        remove_file(&self.dir.join(id))?;
        sync_dir(&self.dir)
    }

    /// Reads every record. Only a newer version is an error: then nothing may be touched.
    pub(crate) fn all<T: PersistentRecord>(&self) -> Result<RecordDirContents<T>> {
        let mut loaded = RecordDirContents { records: Vec::new(), unreadable: Vec::new() };
        for id in names_in(&self.dir)?.into_iter().filter(|name| !name.starts_with('.')) {
            let path = self.dir.join(&id);
            match read::<T>(&path)? {
                Ok(record) => loaded.records.push((id, record)),
                Err(_) if is_empty(&path) => {
                    // A power failure leaves an empty file of a record that need not outlive it.
                    tracing::info!(path = %path.display(), "an empty record is removed");
                    remove_file(&path)?;
                }
                Err(why) => {
                    let aside = self.dir.join(format!("{UNREADABLE}{id}"));
                    fs::rename(&path, &aside).doing(format!("setting {} aside", path.display()))?;
                    loaded.unreadable.push(format!(
                        "{} does not read ({why}); it was set aside as {}",
                        path.display(),
                        aside.display()
                    ));
                }
            }
        }
        Ok(loaded)
    }
}

fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == 0)
}

/// The inner error describes corrupt content.
fn read<T: PersistentRecord>(path: &Path) -> Result<std::result::Result<T, String>> {
    let metadata = fs::metadata(path).doing(format!("looking at {}", path.display()))?;
    if metadata.len() > MAX_SIZE {
        return Ok(Err(format!("it has {} bytes", metadata.len())));
    }
    let bytes = fs::read(path).doing(format!("reading {}", path.display()))?;
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Ok(Err("it has no first line".to_owned()));
    };
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut words = line.split(' ');
    let version = match (words.next(), words.next(), words.next(), words.next()) {
        (Some("keelson"), Some(kind), Some(version), None) if kind == T::KIND => {
            version.parse::<u32>().ok()
        }
        _ => None,
    };
    match version {
        None => Ok(Err(format!("its first line is {line:?}"))),
        Some(version) if version > T::VERSION => Err(CriError::plain(format!(
            "{} is of version {version}; this program reads up to {}: use the program that wrote it",
            path.display(),
            T::VERSION
        ))),
        Some(_) => Ok(T::decode(&bytes[end + 1..]).map_err(|error| error.to_string())),
    }
}

/// Creates a private directory and its parents, if missing.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(path)
        .doing(format!("creating the directory {}", path.display()))
}

/// Writes and syncs a file.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with_durability(path, bytes, Durability::Synced)
}

pub(crate) fn write_with_durability(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let temporary = dir.join(format!("{UNFINISHED}{}", identity::fresh()?));
    write_and_rename(&temporary, path, bytes, durability)
}

/// The temporary name of a file in a directory that is not swept: the code that removes the file
/// removes this one too.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{UNFINISHED}{name}"))
}

/// Writes a file through a temporary name that the caller chooses.
pub(crate) fn write_via(temporary: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    write_and_rename(temporary, path, bytes, Durability::OldOrNew)
}

fn write_and_rename(
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
        file.write_all(bytes)?;
        if durability != Durability::SurvivesKills {
            file.sync_data()?;
        }
        fs::rename(temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(temporary);
    }
    written.doing(format!("writing {}", path.display()))?;
    match durability {
        Durability::Synced => sync_dir(dir),
        Durability::OldOrNew | Durability::SurvivesKills => Ok(()),
    }
}

pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).doing(format!("syncing {}", path.display()))
}

/// Removes a file; a missing one is no error.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removes a tree of any depth; a missing one is no error. Never crosses into another mount: the
/// caller has unmounted everything below.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let what = || format!("removing {}", path.display());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.is_dir() => {
            return Err(io::Error::from(io::ErrorKind::NotADirectory)).doing(what());
        }
        found => found.doing(what())?,
    };
    let Some((parent, name)) = path.parent().zip(path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput)).doing(what());
    };
    host_paths::OpenDir::open(parent)
        .and_then(|parent| host_paths::remove_tree(&parent, name))
        .map_err(|error| CriError::plain(error.to_string()).with_context(what()))
}

/// The names in a directory, sorted; none if it is missing.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing(format!("listing {}", dir.display()))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.doing(format!("listing {}", dir.display()))?.file_name();
        names.extend(name.into_string());
    }
    names.sort_unstable();
    Ok(names)
}
