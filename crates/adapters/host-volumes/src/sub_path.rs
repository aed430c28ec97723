//! Pins a path below a volume, so that a container sees what was found and nothing else.
//!
//! Rule: the kernel resolves the path beneath the volume (openat2) and the resulting descriptor is
//! bind-mounted; whatever a container swaps meanwhile, it can only reach what is below its volume
//! already. Laid out as upstream does (volume/util/subpath/subpath_linux.go).

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use host_paths::{Doing as _, Folder, Links, Trouble, is_mount_root};
use ports::pod_host::SubPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::failure::StepFailure;
use crate::layout::{PodPlace, SUB_PATHS, named, present};
use crate::mounting::{bind, unmount};

const MOST_NAMES: usize = 1 << 16;

pub(crate) fn pin(pod: &PodPlace, request: &SubPath) -> Result<PathBuf, StepFailure> {
    named(&request.volume, &pod.path)?;
    named(&request.container, &pod.path)?;
    let wanted = Path::new(&request.sub_path);
    if wanted.is_absolute() {
        return Err(StepFailure::lasting(format!(
            "error SubPath `{}` must not be an absolute path",
            request.sub_path
        )));
    }
    if wanted.components().any(|part| part == Component::ParentDir) {
        return Err(StepFailure::lasting(format!(
            "unable to provision SubPath `{}`: must not contain '..'",
            request.sub_path
        )));
    }
    let found = open_or_make(&Folder::open(&request.volume_path)?, wanted)?;
    let place = format!("{SUB_PATHS}/{}/{}", request.volume, request.container);
    let folder = pod.make()?.make_folder(place, 0o750)?;
    let name = request.mount_index.to_string();
    let path = folder.path_of(&name);
    if is_mount_root(&folder, Path::new(&name)).unwrap_or(false) {
        if is_same(&folder, &name, &found)? {
            return Ok(path);
        }
        unmount(&folder, Path::new(&name))?;
    }
    let bound = make_point(&folder, &name, &found).and_then(|()| bind(&found, &folder, &name));
    if let Err(trouble) = bound {
        // Nothing that looks like a pinned path may stay if the pin failed.
        let _left = remove_point(&folder, Path::new(&name));
        return Err(trouble.into());
    }
    Ok(path)
}

/// Opens a path below a volume; missing parts are created as directories with the volume's own
/// mode.
fn open_or_make(volume: &Folder, wanted: &Path) -> Result<OwnedFd, Trouble> {
    match volume.open_below(wanted, OFlags::PATH, Links::Within) {
        Err(trouble) if trouble.is_missing() => {}
        Err(trouble) if trouble.errno() == Some(Errno::XDEV) => {
            return behind_absolute_links(volume, wanted).unwrap_or(Err(trouble));
        }
        done => return done,
    }
    let mode = rustix::fs::fstat(volume).doing("look at", volume.path())?.st_mode & 0o7777;
    let parts: Vec<&Path> = wanted
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| Path::new(part.as_os_str()))
        .collect();
    // The longest existing prefix, resolved through symlinks that stay within.
    let mut there = parts.len();
    let mut folder = loop {
        there = there.saturating_sub(1);
        let beginning: PathBuf = parts[..there].iter().collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match volume.open_below(&beginning, flags, Links::Within) {
            Err(trouble) if trouble.is_missing() && there > 0 => {}
            done => break done?,
        }
    };
    let mut path: PathBuf = volume.path_of(parts[..there].iter().collect::<PathBuf>());
    for name in &parts[there..] {
        path.push(name);
        // A name that appeared meanwhile is not used: it may have been put there by an attacker.
        rustix::fs::mkdirat(&folder, *name, Mode::from_raw_mode(mode)).doing("make", &path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = rustix::fs::openat(&folder, *name, flags, Mode::empty()).doing("open", &path)?;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)).doing("set the mode of", &path)?;
    }
    Ok(folder)
}

/// The kernel refuses absolute symlinks beneath a directory, also those that lead back into it.
/// Such a link is resolved first, and the result is opened without following any: a process that
/// swaps one meanwhile gains nothing. `None` if it is not below the volume.
fn behind_absolute_links(volume: &Folder, wanted: &Path) -> Option<Result<OwnedFd, Trouble>> {
    let root = std::fs::canonicalize(volume.path()).ok()?;
    let found = std::fs::canonicalize(volume.path_of(wanted)).ok()?;
    let below = Path::new(".").join(found.strip_prefix(root).ok()?);
    Some(volume.open_below(below, OFlags::PATH, Links::Refused))
}

fn is_same(folder: &Folder, name: &str, found: &OwnedFd) -> Result<bool, Trouble> {
    let path = folder.path_of(name);
    let there =
        rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).doing("look at", &path)?;
    let found = rustix::fs::fstat(found).doing("look at", &path)?;
    Ok((there.st_dev, there.st_ino) == (found.st_dev, found.st_ino))
}

/// Creates a mount point: a directory for a directory, a file for anything else.
fn make_point(folder: &Folder, name: &str, found: &OwnedFd) -> Result<(), Trouble> {
    let path = folder.path_of(name);
    let kind = rustix::fs::fstat(found).doing("look at", &path)?.st_mode;
    let is_folder = FileType::from_raw_mode(kind) == FileType::Directory;
    // An earlier call may have left a mount point of the other kind.
    remove_point(folder, Path::new(name))?;
    if is_folder {
        rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o750)).doing("make", &path)
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o640))
            .map(drop)
            .doing("make", &path)
    }
}

/// Unmounts what is at a name and removes the empty directory or file that was the mount point.
pub(crate) fn remove_point(folder: &Folder, name: &Path) -> Result<(), Trouble> {
    unmount(folder, name)?;
    let Err(errno) = rustix::fs::unlinkat(folder, name, AtFlags::empty()) else { return Ok(()) };
    match errno {
        Errno::NOENT => Ok(()),
        Errno::ISDIR | Errno::PERM => rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
            .doing("remove the empty directory", &folder.path_of(name)),
        errno => Err(Trouble::new("remove", &folder.path_of(name), errno)),
    }
}

/// Releases the sub-paths of one container, or of all.
pub(crate) fn release(pod: &PodPlace, container: Option<&str>) -> Result<(), Trouble> {
    if let Some(container) = container {
        named(container, &pod.path)?;
    }
    let Some(folder) = pod.open()? else { return Ok(()) };
    let Some(volumes) = present(folder.folder(SUB_PATHS))? else { return Ok(()) };
    for volume in volumes.names(MOST_NAMES)? {
        let containers = volumes.folder(&volume)?;
        for name in containers.names(MOST_NAMES)? {
            if container.is_some_and(|wanted| name != wanted) {
                continue;
            }
            let points = containers.folder(&name)?;
            for point in points.names(MOST_NAMES)? {
                remove_point(&points, Path::new(&point))?;
            }
            remove_if_empty(&containers, Path::new(&name))?;
        }
        remove_if_empty(&volumes, Path::new(&volume))?;
    }
    remove_if_empty(&folder, Path::new(SUB_PATHS))
}

pub(crate) fn remove_if_empty(folder: &Folder, name: &Path) -> Result<(), Trouble> {
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(Trouble::new("remove the directory", &folder.path_of(name), errno)),
    }
}
