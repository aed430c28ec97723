//! Opens and creates paths in a container's root, which may be controlled by an attacker.
//!
//! Rule: no step ever leaves the root, follows a magic link of `/proc`, or relies on a name that
//! was looked up before: a lookup returns a descriptor, and all further work uses that.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{CreateError, During, Result};

#[cfg(test)]
mod tests;

/// The kernel's limit.
const MAX_LINKS: u32 = 40;
const MAX_PARTS: usize = 4096;
/// `f_type` of procfs.
const PROC_MAGIC: u64 = 0x9fa0;

/// What to create if nothing exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateAs {
    File,
    Dir,
}

/// A container's root by descriptor.
#[derive(Debug)]
pub(crate) struct ContainerRoot {
    dir: OwnedFd,
}

impl ContainerRoot {
    pub(crate) fn new(dir: OwnedFd) -> Self {
        Self { dir }
    }

    /// The root of this process.
    pub(crate) fn here() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open("/", flags, Mode::empty()).during("opening /")?;
        Ok(Self { dir })
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Looks up a path, following links inside the root; returns an O_PATH descriptor.
    pub(crate) fn find(&self, path: &str) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH, ResolveFlags::empty())
    }

    /// The same, but a symbolic link in any component is an error (ELOOP).
    pub(crate) fn find_without_links(&self, path: &str) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH, ResolveFlags::NO_SYMLINKS)
    }

    pub(crate) fn open(
        &self,
        path: &str,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> io::Result<OwnedFd> {
        let resolve = resolve | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // openat2(2) returns EAGAIN after a concurrent rename.
        for _ in 0..32 {
            match rustix::fs::openat2(
                &self.dir,
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            ) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome.map_err(Into::into),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Looks up a path and creates what is missing, also behind a dangling link.
    pub(crate) fn find_or_create(&self, path: &str, missing: CreateAs) -> Result<OwnedFd> {
        match self.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => return outcome.during(format_args!("opening {path} in the container")),
        }
        let mut walk = RootWalk {
            root: self,
            at: Vec::new(),
            here: self.dir.try_clone().during("copying a descriptor")?,
            links: 0,
        };
        walk.walk_path(path, missing).during(format_args!("making {path} in the container"))
    }

    /// Creates a symbolic link unless the name exists.
    pub(crate) fn link(&self, target: &str, path: &str) -> Result<()> {
        let (parent, name) = split(path)?;
        let dir = self.find_or_create(parent, CreateAs::Dir)?;
        match rustix::fs::symlinkat(target, &dir, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno).during(format_args!("linking {path} in the container")),
        }
    }
}

/// Parent and name of an absolute path.
pub(crate) fn split(path: &str) -> Result<(&str, &str)> {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((parent, name)) if !name.is_empty() && name != ".." && name != "." => {
            Ok((if parent.is_empty() { "/" } else { parent }, name))
        }
        _ => Err(CreateError::invalid_spec(format!(
            "{path:?}: expected an absolute path to something"
        ))),
    }
}

/// Walks a path by components; the kernel never follows a link in it.
struct RootWalk<'a> {
    root: &'a ContainerRoot,
    /// Resolved names from the root to `here`.
    at: Vec<String>,
    here: OwnedFd,
    links: u32,
}

impl RootWalk<'_> {
    fn walk_path(&mut self, path: &str, missing: CreateAs) -> io::Result<OwnedFd> {
        let mut parts = parts_of(path)?;
        while let Some(part) = parts.pop_front() {
            if part == ".." {
                self.at.pop();
                self.here = self.root.find_without_links(&format!("/{}", self.at.join("/")))?;
                continue;
            }
            let last = parts.is_empty();
            let kind = if last { missing } else { CreateAs::Dir };
            let next = self.open_or_create(&part, kind)?;
            let stat = rustix::fs::fstat(&next)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                self.follow_link(&next, &mut parts)?;
                continue;
            }
            self.at.push(part);
            self.here = next;
        }
        self.here.try_clone()
    }

    fn follow_link(&mut self, link: &OwnedFd, parts: &mut VecDeque<String>) -> io::Result<()> {
        self.links += 1;
        // Magic links of procfs do not lead where their text says; openat2(2) has refused them
        // before.
        if rustix::fs::fstatfs(link)?.f_type as u64 == PROC_MAGIC || self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = target.to_str().map_err(io::Error::other)?.to_owned();
        if target.starts_with('/') {
            self.at.clear();
            self.here = self.root.dir.try_clone()?;
        }
        for part in parts_of(&target)?.into_iter().rev() {
            parts.push_front(part);
        }
        if parts.len() > MAX_PARTS {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(())
    }

    fn open_or_create(&self, name: &str, missing: CreateAs) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.here, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            outcome => return outcome.map_err(Into::into),
        }
        match missing {
            CreateAs::Dir => rustix::fs::mkdirat(&self.here, name, Mode::from_raw_mode(0o755))?,
            CreateAs::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let flags = flags | OFlags::WRONLY | OFlags::NONBLOCK;
                drop(rustix::fs::openat(&self.here, name, flags, Mode::from_raw_mode(0o644))?);
            }
        }
        rustix::fs::openat(&self.here, name, flags, Mode::empty()).map_err(Into::into)
    }
}

fn parts_of(path: &str) -> io::Result<VecDeque<String>> {
    let mut parts = VecDeque::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => {
                let name = name.to_str().ok_or_else(|| io::Error::other("a name is not UTF-8"))?;
                parts.push_back(name.to_owned());
            }
            Component::ParentDir => parts.push_back("..".to_owned()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(parts)
}

/// A file or directory of the host, with an optional path beneath it that may not lead out.
pub(crate) fn open_source(source: &str, sub_path: &str, no_links: bool) -> Result<OwnedFd> {
    if !source.starts_with('/') {
        return Err(CreateError::invalid_spec(format!(
            "the mount source {source:?} is not an absolute path"
        )));
    }
    let resolve = if no_links { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(CWD, source, flags, Mode::empty(), resolve)
        .during(format_args!("opening the mount source {source}"))?;
    if sub_path.is_empty() {
        return Ok(found);
    }
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&found, sub_path, flags, Mode::empty(), beneath)
        .during(format_args!("opening {sub_path} beneath the mount source {source}"))
}

pub(crate) fn is_dir(descriptor: impl AsFd) -> Result<bool> {
    let stat = rustix::fs::statat(descriptor.as_fd(), "", AtFlags::EMPTY_PATH)
        .during("looking at a descriptor")?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
