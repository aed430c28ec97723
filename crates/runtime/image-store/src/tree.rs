//! Writes below one directory and nowhere else, whatever names it is given.
//!
//! Every path is resolved by the kernel with the directory as root (`openat2` with
//! RESOLVE_IN_ROOT), so a symlink to `/etc` inside it means the directory's own `etc`. Existing
//! files are never written through: they are removed and created again. Names with `..` are
//! refused, a leading slash means the directory itself.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, linkat, mkdirat,
    mknodat, openat, openat2, readlinkat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::error::{Error, PathContext as _, Result};
use crate::limits::Limits;

#[cfg(test)]
mod tests;

/// Symlinks to symlinks before a loop is assumed; the kernel's own limit.
const MAX_LINKS: usize = 40;
const MAX_PART_LENGTH: usize = 255;

/// A path inside a tree: components without `.`, `..` or slashes. Empty: the tree's root.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TreePath(Vec<Vec<u8>>);

impl TreePath {
    pub(crate) fn parse(path: &[u8], limits: &Limits) -> Result<Self> {
        let shown = || String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
        let mut parts = Vec::new();
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    return Err(Error::archive(
                        format!("path {:?}", shown()),
                        "has a part \"..\", which could lead out of the layer",
                    ));
                }
                part if part.len() > MAX_PART_LENGTH => {
                    return Err(Error::archive(
                        format!("path {:?}", shown()),
                        format!("has a part of {} bytes; file names end at 255", part.len()),
                    ));
                }
                part => parts.push(part.to_vec()),
            }
        }
        let found = parts.len() as u64;
        Limits::check(|| format!("path {:?}: depth", shown()), found, limits.path_depth as u64)?;
        Ok(Self(parts))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn parts(&self) -> &[Vec<u8>] {
        &self.0
    }

    pub(crate) fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.0.last().map_or(b".", Vec::as_slice))
    }

    pub(crate) fn parent(&self) -> TreePath {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    pub(crate) fn child(&self, name: &[u8]) -> TreePath {
        let mut parts = self.0.clone();
        parts.push(name.to_vec());
        Self(parts)
    }

    pub(crate) fn relative(&self) -> PathBuf {
        if self.0.is_empty() {
            return PathBuf::from(".");
        }
        PathBuf::from(std::ffi::OsString::from_vec(self.0.join(&b'/')))
    }

    /// The target of a symlink at this path, by name alone, never above the root.
    pub(crate) fn follow(&self, target: &[u8]) -> TreePath {
        let mut parts = if target.starts_with(b"/") { Vec::new() } else { self.parent().0 };
        for part in target.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    parts.pop();
                }
                part => parts.push(part.to_vec()),
            }
        }
        Self(parts)
    }
}

/// An open directory and everything below it.
pub(crate) struct Tree {
    root: OwnedFd,
    place: PathBuf,
    /// The last parent directory; archives list a directory's files together.
    recent: Option<(TreePath, OwnedFd)>,
    implied: Vec<TreePath>,
    deepest: usize,
}

impl Tree {
    pub(crate) fn open(place: &Path, limits: &Limits) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::open(place, flags, Mode::empty()).doing("opening", place)?;
        Ok(Self {
            root,
            place: place.to_owned(),
            recent: None,
            implied: Vec::new(),
            deepest: limits.path_depth,
        })
    }

    /// Directories without an entry that were created for their children.
    pub(crate) fn take_implied_dirs(&mut self) -> Vec<TreePath> {
        std::mem::take(&mut self.implied)
    }

    /// A path of this tree as shown in errors.
    pub(crate) fn at(&self, path: &TreePath) -> PathBuf {
        self.place.join(path.relative())
    }

    /// Opens a directory of the tree, following symlinks inside it.
    fn enter(&self, path: &TreePath) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        retry(|| openat2(&self.root, path.relative(), flags, Mode::empty(), within()))
    }

    /// Opens the parent directory of `path`; creates missing ones.
    pub(crate) fn parent(&mut self, path: &TreePath) -> Result<OwnedFd> {
        let parent = path.parent();
        if let Some((recent, dir)) = &self.recent
            && *recent == parent
        {
            return dir.try_clone().doing("opening", &self.place);
        }
        let dir = self.ensure_dir(&parent, 0)?;
        self.check_depth(&parent, &dir)?;
        let kept = dir.try_clone().doing("opening", &self.place)?;
        self.recent = Some((parent, kept));
        Ok(dir)
    }

    fn ensure_dir(&mut self, path: &TreePath, links: usize) -> Result<OwnedFd> {
        match self.enter(path) {
            Ok(dir) => return Ok(dir),
            Err(Errno::NOENT) if !path.is_root() => {}
            Err(Errno::NOTDIR) => {
                return Err(Error::archive(
                    format!("path {:?}", path.relative()),
                    "is needed as a directory but is a file",
                ));
            }
            Err(error) => return Err(error).doing("opening", &self.at(path)),
        }
        if links > MAX_LINKS {
            return Err(Error::archive(
                format!("path {:?}", path.relative()),
                "leads through too many links",
            ));
        }
        let parent = self.ensure_dir(&path.parent(), links)?;
        match mkdirat(&parent, path.name(), Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let made = openat(&parent, path.name(), flags, Mode::empty());
                let made = made.doing("opening", &self.at(path))?;
                self.implied.push(self.real_path(&made).unwrap_or_else(|| path.clone()));
                Ok(made)
            }
            // Only a dangling symlink exists and yet cannot be entered.
            Err(Errno::EXIST) => {
                let target = readlinkat(&parent, path.name(), Vec::new())
                    .doing("reading the link", &self.at(path))?;
                let target = path.follow(target.as_bytes());
                self.ensure_dir(&target, links + 1)
            }
            Err(error) => Err(error).doing("creating the directory", &self.at(path)),
        }
    }

    /// Symlinks could turn short paths into a tree too deep to be walked or removed again.
    fn check_depth(&self, path: &TreePath, dir: &OwnedFd) -> Result<()> {
        let depth = match self.real_path(dir) {
            Some(real) => real.parts().len(),
            // Without /proc the depth is unknown; otherwise the path exceeds the kernel's limit.
            None if self.real_path(&self.root).is_none() => 0,
            None => self.deepest.saturating_add(1),
        };
        Limits::check(
            || format!("path {:?}: depth behind its links", path.relative()),
            depth as u64,
            self.deepest as u64,
        )
    }

    /// The path of an open directory in the tree, after following symlinks.
    fn real_path(&self, dir: &OwnedFd) -> Option<TreePath> {
        let shown = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let (root, path) = (shown(&self.root).ok()?, shown(dir).ok()?);
        let inside = path.strip_prefix(root).ok()?;
        Some(TreePath(inside.iter().map(|part| part.as_bytes().to_vec()).collect()))
    }

    /// What exists at `path`, the last component not followed. Missing parents are not created.
    pub(crate) fn stat(&self, path: &TreePath) -> Result<Option<Stat>> {
        let dir = match self.enter(&path.parent()) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error).doing("opening", &self.at(path)),
        };
        match statat(&dir, path.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).doing("looking at", &self.at(path)),
        }
    }

    /// The same, but a symlink among the parents means that nothing exists there.
    pub(crate) fn stat_without_links(&self, path: &TreePath) -> Result<Option<Stat>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let parent = path.parent().relative();
        let dir = retry(|| openat2(&self.root, &parent, flags, Mode::empty(), resolve));
        let found = dir.and_then(|dir| statat(&dir, path.name(), AtFlags::SYMLINK_NOFOLLOW));
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error).doing("looking at", &self.at(path)),
        }
    }

    /// Removes whatever exists at `path`, with everything below it.
    pub(crate) fn clear(&mut self, path: &TreePath) -> Result<OwnedFd> {
        let dir = self.parent(path)?;
        match unlinkat(&dir, path.name(), AtFlags::empty()) {
            Ok(()) => self.recent = None,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => {
                self.recent = None;
                remove_beneath(&dir, path.name()).doing("removing", &self.at(path))?;
            }
            Err(error) => return Err(error).doing("removing", &self.at(path)),
        }
        Ok(dir)
    }

    pub(crate) fn create_file(&mut self, path: &TreePath) -> Result<File> {
        let dir = self.clear(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&dir, path.name(), flags, Mode::from_raw_mode(0o600));
        Ok(File::from(file.doing("making", &self.at(path))?))
    }

    /// An existing directory stays with its content; anything else is replaced.
    pub(crate) fn create_dir(&mut self, path: &TreePath) -> Result<()> {
        let dir = self.parent(path)?;
        let there = statat(&dir, path.name(), AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
            return Ok(());
        }
        let dir = self.clear(path)?;
        let made = mkdirat(&dir, path.name(), Mode::from_raw_mode(0o755));
        made.doing("creating the directory", &self.at(path))
    }

    pub(crate) fn create_symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<OwnedFd> {
        let dir = self.clear(path)?;
        self.recent = None;
        symlinkat(OsStr::from_bytes(target), &dir, path.name())
            .doing("making the link", &self.at(path))?;
        Ok(dir)
    }

    /// A hard link to a file of this tree. Neither name is followed if it is a symlink.
    pub(crate) fn create_hard_link(&mut self, path: &TreePath, target: &TreePath) -> Result<()> {
        if path == target {
            return Ok(());
        }
        let missing = |reason: &str| {
            Error::archive(
                format!("hard link {:?} to {:?}", path.relative(), target.relative()),
                reason,
            )
        };
        match self.stat(target)? {
            None => return Err(missing("the target is not in this layer")),
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(missing("the target is a folder"));
            }
            Some(_) => {}
        }
        let dir = self.clear(path)?;
        let linked = self
            .enter(&target.parent())
            .and_then(|source| linkat(&source, target.name(), &dir, path.name(), AtFlags::empty()));
        match linked {
            // Removing the old file at the link's path removed the target.
            Err(Errno::NOENT) => Err(missing("the target lies beneath the link")),
            other => other.doing("linking", &self.at(path)),
        }
    }

    pub(crate) fn create_node(
        &mut self,
        path: &TreePath,
        kind: FileType,
        device: u64,
    ) -> Result<OwnedFd> {
        let dir = self.clear(path)?;
        mknodat(&dir, path.name(), kind, Mode::from_raw_mode(0o600), device)
            .doing("making the device", &self.at(path))?;
        Ok(dir)
    }

    pub(crate) fn open_dir(&self, path: &TreePath) -> Result<Option<OwnedFd>> {
        let parent = match self.enter(&path.parent()) {
            Ok(parent) => parent,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error).doing("opening", &self.at(path)),
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&parent, path.name(), flags, Mode::empty()) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error).doing("opening", &self.at(path)),
        }
    }

    /// The target of the symlink at `path`, if it is one.
    pub(crate) fn link_target(&self, path: &TreePath) -> Option<Vec<u8>> {
        let parent = self.enter(&path.parent()).ok()?;
        Some(readlinkat(&parent, path.name(), Vec::new()).ok()?.into_bytes())
    }

    /// Moves the content of the directory `from` into the directory `to`; existing files stay.
    pub(crate) fn merge(&mut self, from: &TreePath, to: &TreePath) -> Result<()> {
        self.recent = None;
        let Some(source) = self.open_dir(from)? else { return Ok(()) };
        let target = self.ensure_dir(to, 0)?;
        for name in names(&source).doing("listing", &self.at(from))? {
            let moved = renameat_with(
                &source,
                OsStr::from_bytes(&name),
                &target,
                OsStr::from_bytes(&name),
                RenameFlags::NOREPLACE,
            );
            match moved {
                Ok(()) => {}
                Err(Errno::EXIST) => self.merge(&from.child(&name), &to.child(&name))?,
                Err(error) => return Err(error).doing("moving", &self.at(from)),
            }
        }
        let parent = self.enter(&from.parent()).doing("opening", &self.at(from))?;
        remove_beneath(&parent, from.name()).doing("removing", &self.at(from))
    }
}

fn within() -> ResolveFlags {
    ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS
}

/// The kernel returns EAGAIN when something was renamed during the resolution.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..100 {
        match call() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

pub(crate) fn names(dir: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(name.to_vec());
        }
    }
    found.sort();
    Ok(found)
}

/// Removes `name` in `dir` and everything below it, following no symlink.
pub(crate) fn remove_beneath(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let inner = openat(dir, name, flags, Mode::empty())?;
    for child in names(&inner)? {
        remove_beneath(&inner, OsStr::from_bytes(&child))?;
    }
    unlinkat(dir, name, AtFlags::REMOVEDIR)
}
