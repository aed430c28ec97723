//! Reads everything at a manifest path: one file, or the files of one directory.
//!
//! Rule: dot files are skipped, subdirectories are not searched, symlinks are followed as upstream
//! follows them; a file that cannot be read is reported with the cause and never blocks (upstream:
//! config/file.go). One call, one read; does not watch.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use host_paths::{Folder, Links, Trouble};
use ports::pod_sources::{ManifestContent, ManifestFile, SourceTelling};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::LONGEST_MANIFEST;

#[cfg(test)]
mod tests;

/// More names than this in one directory are a mistake.
const MOST_FILES: usize = 4096;

/// Limit of all manifests of a directory together.
const MOST_BYTES: usize = 64 << 20;

/// The manifests, and the paths to watch for the next change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) telling: SourceTelling,
    pub(crate) shape: Shape,
    /// Targets of the directory's symlinks that are outside of it.
    pub(crate) linked: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Missing,
    File,
    Folder,
    Other,
}

pub(crate) fn shape_of(path: &Path) -> Result<Shape, io::Error> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(Shape::Folder),
        Ok(found) if found.is_file() => Ok(Shape::File),
        Ok(_) => Ok(Shape::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Shape::Missing),
        Err(error) => Err(error),
    }
}

pub(crate) fn list(path: &Path) -> Listing {
    let unreachable = |why: String| Listing {
        telling: SourceTelling::Unreachable(why),
        shape: Shape::Other,
        linked: Vec::new(),
    };
    match shape_of(path) {
        Ok(Shape::Missing) => Listing {
            telling: SourceTelling::All(Vec::new()),
            shape: Shape::Missing,
            linked: Vec::new(),
        },
        Ok(Shape::File) => list_file(path),
        Ok(Shape::Folder) => match list_folder(path) {
            Ok(listing) => listing,
            Err(trouble) if trouble.is_missing() => Listing {
                telling: SourceTelling::All(Vec::new()),
                shape: Shape::Missing,
                linked: Vec::new(),
            },
            Err(trouble) => unreachable(trouble.to_string()),
        },
        Ok(Shape::Other) => unreachable(format!(
            "the manifest path {} is neither a file nor a directory",
            path.display()
        )),
        Err(error) => unreachable(format!(
            "the manifest path {} cannot be looked at: {error}",
            path.display()
        )),
    }
}

fn list_file(path: &Path) -> Listing {
    let mut linked = Vec::new();
    note_link(path, &mut linked);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_else(|| OsStr::new("."));
    let files = match read_file(parent.unwrap_or(Path::new(".")), name) {
        Some(content) => vec![ManifestFile { name: shown(path), content }],
        None => Vec::new(),
    };
    Listing { telling: SourceTelling::All(files), shape: Shape::File, linked }
}

fn list_folder(path: &Path) -> Result<Listing, Trouble> {
    let folder = Folder::open(path)?;
    let mut files = Vec::new();
    let mut linked = Vec::new();
    let mut left = MOST_BYTES;
    for name in folder.names(MOST_FILES)? {
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let whole = path.join(&name);
        note_link(&whole, &mut linked);
        let content = match read_file(path, &name) {
            None => continue,
            Some(ManifestContent::Bytes(bytes)) if bytes.len() > left => {
                ManifestContent::Unreadable(format!(
                    "the manifests in {} have more than {} MiB together",
                    path.display(),
                    MOST_BYTES >> 20
                ))
            }
            Some(content) => content,
        };
        if let ManifestContent::Bytes(bytes) = &content {
            left -= bytes.len();
        }
        files.push(ManifestFile { name: shown(&whole), content });
    }
    Ok(Listing { telling: SourceTelling::All(files), shape: Shape::Folder, linked })
}

/// Records a symlink's target, so that a change there is noticed.
fn note_link(path: &Path, linked: &mut Vec<PathBuf>) {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if is_link && let Ok(target) = std::fs::canonicalize(path) {
        linked.push(target);
    }
}

/// `None` if the file has been removed since it was listed.
fn read_file(folder: &Path, name: &OsStr) -> Option<ManifestContent> {
    match content_of(folder, name) {
        Ok(bytes) => Some(ManifestContent::Bytes(bytes)),
        Err(trouble) => {
            let path = folder.join(name);
            let is_link = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
            match trouble.errno() {
                Some(Errno::NOENT) if is_link => Some(ManifestContent::Unreadable(format!(
                    "{} is a symlink to something that is not there",
                    path.display()
                ))),
                Some(Errno::NOENT) => None,
                Some(Errno::LOOP) => Some(ManifestContent::Unreadable(format!(
                    "{} is a symlink that leads back to itself",
                    path.display()
                ))),
                _ => Some(ManifestContent::Unreadable(trouble.to_string())),
            }
        }
    }
}

fn content_of(folder: &Path, name: &OsStr) -> Result<Vec<u8>, Trouble> {
    let path = folder.join(name);
    // An administrator's link may lead anywhere, as upstream has it; its target must be a file.
    let end =
        std::fs::canonicalize(&path).map_err(|error| Trouble::new("resolve", &path, error))?;
    let kind = std::fs::symlink_metadata(&end)
        .map(|found| FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&found)))
        .map_err(|error| Trouble::new("look at", &path, error))?;
    if kind == FileType::Directory {
        return Err(Trouble::refused("read", &path, "a folder; folders are not searched"));
    }
    let (Some(parent), Some(last)) = (end.parent(), end.file_name()) else {
        return Err(Trouble::refused("read", &path, "not a file"));
    };
    Folder::open(parent)?.read(last, Links::Refused, LONGEST_MANIFEST)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
