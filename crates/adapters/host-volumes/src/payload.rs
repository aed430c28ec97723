//! Volumes whose files the agent writes: configMap, secret, downwardAPI, projected.
//!
//! Rules: a container sees all of one version of the files. They are written into a new directory
//! with a time in its name; `..data` is a symlink to it and is replaced by a rename; the names that
//! containers use are symlinks through `..data`. What fails leaves the version before whole.
//! Nothing that is found in the volume is trusted: it is opened beneath it, without symlinks.
//!
//! upstream: pkg/volume/util/atomic_writer.go

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use host_paths::{
    OpenDir, PathError, PathErrorExt as _, SymlinkPolicy, check_name, is_mount_root, remove_tree,
};
use ports::ApiTime;
use ports::pod_host::{PayloadFile, PayloadVolumeKind};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::empty_dir::{is_memory_mount, mount_memory};
use crate::layout::{PodDirPath, check_dir_name, if_exists};
use crate::ownership::{READ_ONLY_MODES, give_to_group};
use crate::step_error::StepError;

#[cfg(test)]
mod tests;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// What the agent's own names begin with; no file of a payload does.
const OWN_PREFIX: &[u8] = b"..";
const MAX_NAMES: usize = 1 << 17;
const MAX_DEPTH: usize = 64;
/// As upstream makes its emptyDir.
const VOLUME_MODE: u32 = 0o777;
const DIR_MODE: u32 = 0o755;

/// A payload volume to be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PayloadVolume {
    pub(crate) name: String,
    pub(crate) kind: PayloadVolumeKind,
    pub(crate) size: Option<u64>,
    pub(crate) files: std::sync::Arc<Vec<PayloadFile>>,
    pub(crate) mount_points: Vec<String>,
    pub(crate) group: Option<i64>,
}

pub(crate) fn set_up(pod: &PodDirPath, wanted: &PayloadVolume) -> Result<PathBuf, StepError> {
    let name = wanted.name.as_str();
    check_dir_name(name, &pod.path)?;
    let dir = pod.make()?;
    let volumes = dir.make_dir(format!("volumes/{}", wanted.kind.plugin_dir()), 0o755)?;
    let path = volumes.path_of(name);
    let mut volume = match if_exists(volumes.dir(name))? {
        Some(volume) => volume,
        None => volumes.make_dir(name, VOLUME_MODE)?,
    };
    let mounted = is_mount_root(&volumes, Path::new(name)).operation("look at", &path)?;
    if wanted.kind.is_in_memory() && !(mounted && is_memory_mount(&volume)?) {
        mount_memory(&volume, wanted.size)?;
        // The mount hides the directory that was opened before.
        volume = volumes.dir(name)?;
    }
    for point in &wanted.mount_points {
        volume.make_dir(point, DIR_MODE)?;
    }
    write(&volume, wanted)?;
    Ok(path)
}

/// Replaces the files, if they are different.
fn write(volume: &OpenDir, wanted: &PayloadVolume) -> Result<(), StepError> {
    let current = current_version(volume)?;
    let is_current = match &current {
        Some((_, dir)) => holds(dir, &wanted.files),
        None => false,
    };
    if is_current {
        link_names(volume, &wanted.files)?;
        let name = current.map(|(name, _)| name).unwrap_or_default();
        return remove_others(volume, &name, &wanted.files).map_err(StepError::from);
    }
    drop(current);
    let name = version_name();
    let written = write_version(volume, &name, wanted)
        .and_then(|()| link_names(volume, &wanted.files))
        .and_then(|()| switch_to(volume, &name));
    if let Err(path_error) = written {
        // A disk that is full must not be filled further by what no pod sees.
        let _left = remove_tree(volume, &name);
        return Err(path_error.into());
    }
    Ok(remove_others(volume, &name, &wanted.files)?)
}

/// The directory that `..data` leads to, if it is one of this volume's.
fn current_version(volume: &OpenDir) -> Result<Option<(String, OpenDir)>, PathError> {
    let Some(target) = read_link(volume, DATA)? else { return Ok(None) };
    let Ok(name) = String::from_utf8(target) else { return Ok(None) };
    if !name.as_bytes().starts_with(OWN_PREFIX) || check_name(&name).is_err() || name == DATA {
        return Ok(None);
    }
    match volume.dir(&name) {
        Ok(dir) => Ok(Some((name, dir))),
        Err(_) => Ok(None),
    }
}

/// The target of a symlink; None if there is none of that name.
fn read_link(dir: &OpenDir, name: impl AsRef<Path>) -> Result<Option<Vec<u8>>, PathError> {
    let name = name.as_ref();
    match rustix::fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(PathError::new("read the link", &dir.path_of(name), errno)),
    }
}

/// Whether a version holds exactly these files, whatever else was done to it.
fn holds(version: &OpenDir, files: &[PayloadFile]) -> bool {
    let mut names = BTreeSet::new();
    if collect_names(version, Path::new(""), 0, &mut names).is_err() {
        return false;
    }
    let wanted: BTreeSet<PathBuf> = files.iter().map(|file| PathBuf::from(&file.path)).collect();
    names == wanted
        && files.iter().all(|file| {
            let limit = file.content.len() + 1;
            version
                .read(&file.path, SymlinkPolicy::Refused, limit)
                .is_ok_and(|content| content == file.content)
        })
}

/// The paths of everything but directories.
fn collect_names(
    dir: &OpenDir,
    below: &Path,
    depth: usize,
    names: &mut BTreeSet<PathBuf>,
) -> Result<(), PathError> {
    for name in dir.names(MAX_NAMES)? {
        let Some(stat) = dir.stat(Path::new(&name))? else { continue };
        let path = below.join(&name);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if depth >= MAX_DEPTH {
                return Err(PathError::refused("list", dir.path(), "nested too deep"));
            }
            collect_names(&dir.dir(&name)?, &path, depth + 1, names)?;
        } else {
            names.insert(path);
        }
    }
    Ok(())
}

/// Such as `..2026_01_02_03_04_05.123456789`, as upstream's are.
fn version_name() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanos = i64::try_from(since.as_nanos()).unwrap_or_default();
    let text = ApiTime::from_nanos(nanos).to_seconds_text();
    let text = text.trim_end_matches('Z').replace(['-', 'T', ':'], "_");
    format!("..{text}.{:09}", since.subsec_nanos())
}

fn write_version(volume: &OpenDir, name: &str, wanted: &PayloadVolume) -> Result<(), PathError> {
    let path = volume.path_of(name);
    rustix::fs::mkdirat(volume, name, Mode::from_raw_mode(DIR_MODE)).operation("make", &path)?;
    let version = volume.dir(name)?;
    rustix::fs::fchmod(&version, Mode::from_raw_mode(DIR_MODE))
        .operation("set the mode of", &path)?;
    // Files are sorted, so those of one directory follow each other.
    let mut open: Option<(&Path, OpenDir)> = None;
    for file in wanted.files.iter() {
        let file_path = Path::new(&file.path);
        let parent = file_path.parent().unwrap_or(Path::new(""));
        let Some(file_name) = file_path.file_name() else {
            return Err(PathError::refused("write", &path.join(file_path), "it is no file name"));
        };
        let dir = match open.take() {
            Some((path, dir)) if path == parent => dir,
            _ => version.make_dir(parent, DIR_MODE)?,
        };
        write_file(&dir, file_name, file)?;
        open = Some((parent, dir));
    }
    if let Some(group) = wanted.group {
        give_to_group(volume, group, READ_ONLY_MODES)?;
    }
    Ok(())
}

fn write_file(dir: &OpenDir, name: &OsStr, file: &PayloadFile) -> Result<(), PathError> {
    let path = dir.path_of(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let created = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600));
    let mut created = std::fs::File::from(created.operation("create", &path)?);
    created.write_all(&file.content).operation("write", &path)?;
    if let Some(owner) = file.owner {
        let (owner, group) = (Some(Uid::from_raw(owner)), None::<Gid>);
        rustix::fs::fchown(&created, owner, group).operation("give to its user", &path)?;
    }
    let mode = Mode::from_raw_mode(file.mode & 0o777);
    rustix::fs::fchmod(&created, mode).operation("set the mode of", &path)
}

fn first_names(files: &[PayloadFile]) -> BTreeSet<&str> {
    files.iter().filter_map(|file| file.path.split('/').next()).collect()
}

/// Creates the names that containers use. They lead nowhere until the first switch.
fn link_names(volume: &OpenDir, files: &[PayloadFile]) -> Result<(), PathError> {
    for name in first_names(files) {
        let target = format!("{DATA}/{name}");
        let path = volume.path_of(name);
        match rustix::fs::symlinkat(&target, volume, name) {
            Ok(()) => continue,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(PathError::new("link", &path, errno)),
        }
        if read_link(volume, name)?.as_deref() == Some(target.as_bytes()) {
            continue;
        }
        // Something else took the name; a directory with content stays, and is an error.
        match rustix::fs::unlinkat(volume, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::ISDIR | Errno::PERM) => {
                rustix::fs::unlinkat(volume, name, AtFlags::REMOVEDIR)
                    .operation("replace the directory", &path)?;
            }
            Err(errno) => return Err(PathError::new("replace", &path, errno)),
        }
        rustix::fs::symlinkat(&target, volume, name).operation("link", &path)?;
    }
    Ok(())
}

fn switch_to(volume: &OpenDir, name: &str) -> Result<(), PathError> {
    let path = volume.path_of(DATA);
    match rustix::fs::unlinkat(volume, NEW_DATA, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::ISDIR | Errno::PERM) => remove_tree(volume, NEW_DATA)?,
        Err(errno) => return Err(PathError::new("replace", &volume.path_of(NEW_DATA), errno)),
    }
    rustix::fs::symlinkat(name, volume, NEW_DATA).operation("link", &path)?;
    rustix::fs::renameat(volume, NEW_DATA, volume, DATA).operation("switch", &path)
}

/// Removes the names that the payload no longer has, and all versions but one: also those that a
/// killed agent has left.
fn remove_others(volume: &OpenDir, version: &str, files: &[PayloadFile]) -> Result<(), PathError> {
    let names = first_names(files);
    for name in volume.names(MAX_NAMES)? {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(OWN_PREFIX) {
            if name != DATA && name != version {
                remove_tree(volume, &name)?;
            }
            continue;
        }
        if name.to_str().is_some_and(|name| names.contains(name)) {
            continue;
        }
        // A directory is a mount point of another volume.
        let target = read_link(volume, Path::new(&name))?;
        if target.is_some_and(|target| target.starts_with(b"..data/")) {
            let path = volume.path_of(&name);
            rustix::fs::unlinkat(volume, Path::new(&name), AtFlags::empty())
                .operation("remove the link", &path)?;
        }
    }
    Ok(())
}
