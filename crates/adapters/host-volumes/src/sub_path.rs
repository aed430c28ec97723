//! Pins a path below a volume, so that a container sees what was found and nothing else.
//!
//! Rule: the kernel resolves the path beneath the volume (openat2) and the resulting descriptor is
//! bind-mounted; whatever a container swaps meanwhile, it can only reach what is below its volume
//! already. Laid out as upstream does (volume/util/subpath/subpath_linux.go).

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use host_paths::{OpenDir, PathError, PathErrorExt as _, SymlinkPolicy, is_mount_root};
use ports::pod_host::SubPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::layout::{PodDirPath, SUB_PATHS, check_dir_name, if_exists};
use crate::mounting::{bind, unmount};
use crate::step_error::StepError;

const MAX_NAMES: usize = 1 << 16;

pub(crate) fn pin(pod: &PodDirPath, request: &SubPath) -> Result<PathBuf, StepError> {
    check_dir_name(&request.volume, &pod.path)?;
    check_dir_name(&request.container, &pod.path)?;
    let wanted = Path::new(&request.sub_path);
    if wanted.is_absolute() {
        return Err(StepError::permanent(format!(
            "error SubPath `{}` must not be an absolute path",
            request.sub_path
        )));
    }
    if wanted.components().any(|part| part == Component::ParentDir) {
        return Err(StepError::permanent(format!(
            "unable to provision SubPath `{}`: must not contain '..'",
            request.sub_path
        )));
    }
    let found = open_or_make(&OpenDir::open(&request.volume_path)?, wanted)?;
    let place = format!("{SUB_PATHS}/{}/{}", request.volume, request.container);
    let dir = pod.make()?.make_dir(place, 0o750)?;
    let name = request.mount_index.to_string();
    let path = dir.path_of(&name);
    if is_mount_root(&dir, Path::new(&name)).unwrap_or(false) {
        if is_same(&dir, &name, &found)? {
            return Ok(path);
        }
        unmount(&dir, Path::new(&name))?;
    }
    let bound = make_point(&dir, &name, &found).and_then(|()| bind(&found, &dir, &name));
    if let Err(path_error) = bound {
        // Nothing that looks like a pinned path may stay if the pin failed.
        let _left = remove_point(&dir, Path::new(&name));
        return Err(path_error.into());
    }
    Ok(path)
}

/// Opens a path below a volume; missing parts are created as directories with the volume's own
/// mode.
fn open_or_make(volume: &OpenDir, wanted: &Path) -> Result<OwnedFd, PathError> {
    match volume.open_below(wanted, OFlags::PATH, SymlinkPolicy::Within) {
        Err(path_error) if path_error.is_missing() => {}
        Err(path_error) if path_error.errno() == Some(Errno::XDEV) => {
            return behind_absolute_links(volume, wanted).unwrap_or(Err(path_error));
        }
        done => return done,
    }
    let mode = rustix::fs::fstat(volume).operation("look at", volume.path())?.st_mode & 0o7777;
    let parts: Vec<&Path> = wanted
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| Path::new(part.as_os_str()))
        .collect();
    // The longest existing prefix, resolved through symlinks that stay within.
    let mut existing = parts.len();
    let mut dir = loop {
        existing = existing.saturating_sub(1);
        let beginning: PathBuf = parts[..existing].iter().collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match volume.open_below(&beginning, flags, SymlinkPolicy::Within) {
            Err(path_error) if path_error.is_missing() && existing > 0 => {}
            done => break done?,
        }
    };
    let mut path: PathBuf = volume.path_of(parts[..existing].iter().collect::<PathBuf>());
    for name in &parts[existing..] {
        path.push(name);
        // A name that appeared meanwhile is not used: it may have been put there by an attacker.
        rustix::fs::mkdirat(&dir, *name, Mode::from_raw_mode(mode)).operation("make", &path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        dir = rustix::fs::openat(&dir, *name, flags, Mode::empty()).operation("open", &path)?;
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode)).operation("set the mode of", &path)?;
    }
    Ok(dir)
}

/// The kernel refuses absolute symlinks beneath a directory, also those that lead back into it.
/// Such a link is resolved first, and the result is opened without following any: a process that
/// swaps one meanwhile gains nothing. `None` if it is not below the volume.
fn behind_absolute_links(volume: &OpenDir, wanted: &Path) -> Option<Result<OwnedFd, PathError>> {
    let root = std::fs::canonicalize(volume.path()).ok()?;
    let found = std::fs::canonicalize(volume.path_of(wanted)).ok()?;
    let below = Path::new(".").join(found.strip_prefix(root).ok()?);
    Some(volume.open_below(below, OFlags::PATH, SymlinkPolicy::Refused))
}

fn is_same(dir: &OpenDir, name: &str, found: &OwnedFd) -> Result<bool, PathError> {
    let path = dir.path_of(name);
    let existing =
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).operation("look at", &path)?;
    let found = rustix::fs::fstat(found).operation("look at", &path)?;
    Ok((existing.st_dev, existing.st_ino) == (found.st_dev, found.st_ino))
}

/// Creates a mount point: a directory for a directory, a file for anything else.
fn make_point(dir: &OpenDir, name: &str, found: &OwnedFd) -> Result<(), PathError> {
    let path = dir.path_of(name);
    let kind = rustix::fs::fstat(found).operation("look at", &path)?.st_mode;
    let is_dir = FileType::from_raw_mode(kind) == FileType::Directory;
    // An earlier call may have left a mount point of the other kind.
    remove_point(dir, Path::new(name))?;
    if is_dir {
        rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o750)).operation("make", &path)
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o640))
            .map(drop)
            .operation("make", &path)
    }
}

/// Unmounts what is at a name and removes the empty directory or file that was the mount point.
pub(crate) fn remove_point(dir: &OpenDir, name: &Path) -> Result<(), PathError> {
    unmount(dir, name)?;
    let Err(errno) = rustix::fs::unlinkat(dir, name, AtFlags::empty()) else { return Ok(()) };
    match errno {
        Errno::NOENT => Ok(()),
        Errno::ISDIR | Errno::PERM => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
            .operation("remove the empty directory", &dir.path_of(name)),
        errno => Err(PathError::new("remove", &dir.path_of(name), errno)),
    }
}

/// Releases the sub-paths of one container, or of all.
pub(crate) fn release(pod: &PodDirPath, container: Option<&str>) -> Result<(), PathError> {
    if let Some(container) = container {
        check_dir_name(container, &pod.path)?;
    }
    let Some(dir) = pod.open()? else { return Ok(()) };
    let Some(volumes) = if_exists(dir.dir(SUB_PATHS))? else { return Ok(()) };
    for volume in volumes.names(MAX_NAMES)? {
        let containers = volumes.dir(&volume)?;
        for name in containers.names(MAX_NAMES)? {
            if container.is_some_and(|wanted| name != wanted) {
                continue;
            }
            let points = containers.dir(&name)?;
            for point in points.names(MAX_NAMES)? {
                remove_point(&points, Path::new(&point))?;
            }
            remove_if_empty(&containers, Path::new(&name))?;
        }
        remove_if_empty(&volumes, Path::new(&volume))?;
    }
    remove_if_empty(&dir, Path::new(SUB_PATHS))
}

pub(crate) fn remove_if_empty(dir: &OpenDir, name: &Path) -> Result<(), PathError> {
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(PathError::new("remove the directory", &dir.path_of(name), errno)),
    }
}
