//! Copies the files that an image has at the path of a volume.
//!
//! Rule: the path is resolved inside the image, so symlinks and `..` cannot leave it; copies keep
//! owner, mode, time, attributes and hard links, and no symlink is followed. The container's own
//! changes are not copied: a volume is filled before the container exists. Does not decide which
//! volumes exist, nor where.
//!
//! upstream: containerd internal/cri/opts/container.go (WithVolumes)

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, linkat, mkdirat,
    mknodat, openat, openat2, readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use crate::error::{PathContext as _, Result};
use crate::mount::detached_overlay;
use crate::snapshot::fit_to_lower_layers::times;
use crate::tree::names;
use crate::unpack::{UnpackRights, allowed_attribute};
use crate::view::OverlayOptions;

#[cfg(test)]
mod tests;

const MAX_ATTRIBUTES_LENGTH: usize = 64 * 1024;

/// Copies what the image has at `path` into the empty directory `to`, which gets the owner and mode
/// of the image's directory. Returns whether the path exists in the image; a file is an error.
pub fn copy_volume(overlay: &OverlayOptions, path: &str, to: &Path) -> Result<bool> {
    let root = layers(overlay)?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let source = match openat2(&root, path, flags, Mode::empty(), resolve) {
        Ok(source) => source,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error).doing("opening the volume of the image", Path::new(path)),
    };
    let target = openat(CWD, to, flags | OFlags::NOFOLLOW, Mode::empty()).doing("opening", to)?;
    let rights = UnpackRights::ours();
    VolumeCopy { source, target, destination: to, rights, linked: HashMap::new() }.all()?;
    Ok(true)
}

/// The image's layers without the container's changes. A single layer is opened directly, because
/// overlayfs rejects it.
fn layers(overlay: &OverlayOptions) -> Result<OwnedFd> {
    match overlay.lower.as_slice() {
        [only] => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(CWD, only, flags, Mode::empty()).doing("opening", only)
        }
        // Read-only: unmounting a writable overlay would sync the whole file system.
        _ => detached_overlay(&OverlayOptions { upper: None, ..overlay.clone() }),
    }
}

struct VolumeCopy<'a> {
    source: OwnedFd,
    target: OwnedFd,
    /// The path shown in errors.
    destination: &'a Path,
    rights: UnpackRights,
    /// First copy of each file with several links.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl VolumeCopy<'_> {
    fn all(&mut self) -> Result<()> {
        let mut waiting = vec![PathBuf::from(".")];
        let mut dirs = Vec::new();
        while let Some(path) = waiting.pop() {
            let (from, into) = (self.open(&self.source, &path)?, self.open(&self.target, &path)?);
            for name in names(&from).doing("listing", &self.destination.join(&path))? {
                let name = OsStr::from_bytes(&name);
                let inner = path.join(name);
                if self.entry(&from, &into, &inner)? {
                    waiting.push(inner);
                }
            }
            dirs.push(path);
        }
        // From the innermost: adding a file to a directory changes its time.
        for path in dirs.iter().rev() {
            let (from, into) = (self.open(&self.source, path)?, self.open(&self.target, path)?);
            self.copy_metadata(&from, &into, path)?;
        }
        Ok(())
    }

    fn open(&self, root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(root, path, flags, Mode::empty(), resolve)
            .doing("opening", &self.destination.join(path))
    }

    /// Copies one entry; true for a directory, which is created but not yet filled.
    fn entry(&mut self, from: &OwnedFd, into: &OwnedFd, path: &Path) -> Result<bool> {
        let name = path.file_name().unwrap_or_default();
        let destination = self.destination.join(path);
        let stat =
            statat(from, name, AtFlags::SYMLINK_NOFOLLOW).doing("looking at", &destination)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::Directory => {
                mkdirat(into, name, Mode::from_raw_mode(0o700)).doing("making", &destination)?;
                return Ok(true);
            }
            FileType::RegularFile => self.file(from, into, path, &stat)?,
            FileType::Symlink => {
                let target = readlinkat(from, name, Vec::new()).doing("reading", &destination)?;
                symlinkat(target.as_c_str(), into, name).doing("making the link", &destination)?;
                self.owner(into, name, &stat).doing("owner of", &destination)?;
                utimensat(into, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)
                    .doing("time of", &destination)?;
            }
            kind => {
                mknodat(into, name, kind, Mode::from_raw_mode(0o600), stat.st_rdev)
                    .doing("making", &destination)?;
                self.owner(into, name, &stat).doing("owner of", &destination)?;
                chmodat(into, name, mode(&stat), AtFlags::empty())
                    .doing("mode of", &destination)?;
                utimensat(into, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)
                    .doing("time of", &destination)?;
            }
        }
        Ok(false)
    }

    fn file(&mut self, from: &OwnedFd, into: &OwnedFd, path: &Path, stat: &Stat) -> Result<()> {
        let name = path.file_name().unwrap_or_default();
        let destination = self.destination.join(path);
        if stat.st_nlink > 1 {
            let first = self.linked.entry((stat.st_dev, stat.st_ino)).or_insert(path.to_owned());
            if first.as_path() != path {
                return linkat(&self.target, &*first, into, name, AtFlags::empty())
                    .doing("linking", &destination);
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut source =
            File::from(openat(from, name, flags, Mode::empty()).doing("opening", &destination)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made =
            openat(into, name, flags, Mode::from_raw_mode(0o600)).doing("making", &destination)?;
        let mut target = File::from(made);
        std::io::copy(&mut source, &mut target).doing("copying", &destination)?;
        self.copy_metadata(&source.into(), &target.into(), path)
    }

    fn owner(&self, dir: &OwnedFd, name: &OsStr, stat: &Stat) -> rustix::io::Result<()> {
        if !self.rights.owners {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        chownat(dir, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// In an order in which the kernel keeps them: a new owner clears capabilities and mode bits.
    fn copy_metadata(&self, from: &OwnedFd, into: &OwnedFd, path: &Path) -> Result<()> {
        let destination = self.destination.join(path);
        let stat = fstat(from).doing("looking at", &destination)?;
        if self.rights.owners {
            let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            fchown(into, Some(user), Some(group)).doing("owner of", &destination)?;
        }
        fchmod(into, mode(&stat)).doing("mode of", &destination)?;
        copy_attributes(from, into).doing("attributes of", &destination)?;
        futimens(into, &times(&stat)).doing("time of", &destination)
    }
}

fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn copy_attributes(from: &OwnedFd, into: &OwnedFd) -> rustix::io::Result<()> {
    // Most files have few attributes; the large buffer is for the others.
    let mut few = [0; 256];
    let list = match flistxattr(from, &mut few[..]) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
        Ok(length) => few[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut list = Vec::with_capacity(MAX_ATTRIBUTES_LENGTH);
            flistxattr(from, rustix::buffer::spare_capacity(&mut list))?;
            list
        }
        Err(error) => return Err(error),
    };
    for name in list.split(|byte| *byte == 0).filter(|name| allowed_attribute(name)) {
        let mut value = Vec::with_capacity(MAX_ATTRIBUTES_LENGTH);
        fgetxattr(from, name, rustix::buffer::spare_capacity(&mut value))?;
        match fsetxattr(into, name, &value, XattrFlags::empty()) {
            // The other file system may not support such attributes.
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
