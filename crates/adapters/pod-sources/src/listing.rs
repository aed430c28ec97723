//! Reads everything at a manifest path: one file, or the files of one directory.
//!
//! Rule: dot files are skipped, subdirectories are not searched, symlinks are followed as upstream
//! follows them; a file that cannot be read is reported with the cause and never blocks (upstream:
//! config/file.go). One call, one read; does not watch.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use host_paths::{OpenDir, PathError, SymlinkPolicy};
use ports::pod_sources::{ManifestContent, ManifestFile, SourceSnapshot};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::MAX_MANIFEST_BYTES;

#[cfg(test)]
mod tests;

/// More names than this in one directory are a mistake.
const MAX_FILES: usize = 4096;

/// Limit of all manifests of a directory together.
const MAX_DIR_BYTES: usize = 64 << 20;

/// The manifests, and the paths to watch for the next change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ManifestListing {
    pub(crate) snapshot: SourceSnapshot,
    pub(crate) path_kind: PathKind,
    /// Targets of the directory's symlinks that are outside of it.
    pub(crate) symlink_targets: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    Missing,
    File,
    Dir,
    Other,
}

pub(crate) fn path_kind_of(path: &Path) -> Result<PathKind, io::Error> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(PathKind::Dir),
        Ok(found) if found.is_file() => Ok(PathKind::File),
        Ok(_) => Ok(PathKind::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PathKind::Missing),
        Err(error) => Err(error),
    }
}

pub(crate) fn list(path: &Path) -> ManifestListing {
    let unreachable = |reason: String| ManifestListing {
        snapshot: SourceSnapshot::Unreachable(reason),
        path_kind: PathKind::Other,
        symlink_targets: Vec::new(),
    };
    match path_kind_of(path) {
        Ok(PathKind::Missing) => ManifestListing {
            snapshot: SourceSnapshot::All(Vec::new()),
            path_kind: PathKind::Missing,
            symlink_targets: Vec::new(),
        },
        Ok(PathKind::File) => list_file(path),
        Ok(PathKind::Dir) => match list_dir(path) {
            Ok(listing) => listing,
            Err(path_error) if path_error.is_missing() => ManifestListing {
                snapshot: SourceSnapshot::All(Vec::new()),
                path_kind: PathKind::Missing,
                symlink_targets: Vec::new(),
            },
            Err(path_error) => unreachable(path_error.to_string()),
        },
        Ok(PathKind::Other) => unreachable(format!(
            "the manifest path {} is neither a file nor a directory",
            path.display()
        )),
        Err(error) => unreachable(format!(
            "the manifest path {} cannot be looked at: {error}",
            path.display()
        )),
    }
}

fn list_file(path: &Path) -> ManifestListing {
    let mut symlink_targets = Vec::new();
    record_symlink_target(path, &mut symlink_targets);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_else(|| OsStr::new("."));
    let files = match read_file(parent.unwrap_or(Path::new(".")), name) {
        Some(content) => vec![ManifestFile { name: shown(path), content }],
        None => Vec::new(),
    };
    ManifestListing {
        snapshot: SourceSnapshot::All(files),
        path_kind: PathKind::File,
        symlink_targets,
    }
}

fn list_dir(path: &Path) -> Result<ManifestListing, PathError> {
    let dir = OpenDir::open(path)?;
    let mut files = Vec::new();
    let mut symlink_targets = Vec::new();
    let mut left = MAX_DIR_BYTES;
    for name in dir.names(MAX_FILES)? {
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let whole = path.join(&name);
        record_symlink_target(&whole, &mut symlink_targets);
        let content = match read_file(path, &name) {
            None => continue,
            Some(ManifestContent::Bytes(bytes)) if bytes.len() > left => {
                ManifestContent::Unreadable(format!(
                    "the manifests in {} have more than {} MiB together",
                    path.display(),
                    MAX_DIR_BYTES >> 20
                ))
            }
            Some(content) => content,
        };
        if let ManifestContent::Bytes(bytes) = &content {
            left -= bytes.len();
        }
        files.push(ManifestFile { name: shown(&whole), content });
    }
    Ok(ManifestListing {
        snapshot: SourceSnapshot::All(files),
        path_kind: PathKind::Dir,
        symlink_targets,
    })
}

/// Records a symlink's target, so that a change there is noticed.
fn record_symlink_target(path: &Path, symlink_targets: &mut Vec<PathBuf>) {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if is_link && let Ok(target) = std::fs::canonicalize(path) {
        symlink_targets.push(target);
    }
}

/// `None` if the file has been removed since it was listed.
fn read_file(dir: &Path, name: &OsStr) -> Option<ManifestContent> {
    match content_of(dir, name) {
        Ok(bytes) => Some(ManifestContent::Bytes(bytes)),
        Err(path_error) => {
            let path = dir.join(name);
            let is_link = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
            match path_error.errno() {
                Some(Errno::NOENT) if is_link => Some(ManifestContent::Unreadable(format!(
                    "{} is a symlink to something that is not there",
                    path.display()
                ))),
                Some(Errno::NOENT) => None,
                Some(Errno::LOOP) => Some(ManifestContent::Unreadable(format!(
                    "{} is a symlink that leads back to itself",
                    path.display()
                ))),
                _ => Some(ManifestContent::Unreadable(path_error.to_string())),
            }
        }
    }
}

fn content_of(dir: &Path, name: &OsStr) -> Result<Vec<u8>, PathError> {
    let path = dir.join(name);
    // An administrator's link may lead anywhere, as upstream has it; its target must be a file.
    let end =
        std::fs::canonicalize(&path).map_err(|error| PathError::new("resolve", &path, error))?;
    let kind = std::fs::symlink_metadata(&end)
        .map(|found| FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&found)))
        .map_err(|error| PathError::new("look at", &path, error))?;
    if kind == FileType::Directory {
        return Err(PathError::refused("read", &path, "a folder; folders are not searched"));
    }
    let (Some(parent), Some(last)) = (end.parent(), end.file_name()) else {
        return Err(PathError::refused("read", &path, "not a file"));
    };
    OpenDir::open(parent)?.read(last, SymlinkPolicy::Refused, MAX_MANIFEST_BYTES)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
