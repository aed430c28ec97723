//! The file tree of a running container, opened from outside.
//!
//! Rule: `/proc/PID/root` is the one magic link that is followed; from there the kernel resolves
//! every name with that directory as the root (RESOLVE_IN_ROOT), so that absolute symlinks and `..`
//! mean what they mean inside, and magic links lead nowhere.

use super::id_map::root_outside;
use super::tree::CopyTarget;
use anyhow::{Context, Result, bail};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitiesSecureBits, set_capabilities_secure_bits, set_thread_res_gid, set_thread_res_uid,
};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
#[cfg(test)]
use std::path::Path;

/// A concurrent rename makes openat2 return EAGAIN; more retries than this are an attack.
const TRIES: usize = 64;

pub(super) struct ContainerRoot {
    root: OwnedFd,
    /// The host ids of its root user and group.
    user: u32,
    group: u32,
}

impl ContainerRoot {
    pub(super) fn open(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/root");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => anyhow::anyhow!("may not open {path}; ask as root"),
            Errno::NOENT => anyhow::anyhow!("the container has just ended"),
            errno => anyhow::anyhow!("open {path}: {errno}"),
        })?;
        let outside = |kind: &str| {
            let path = format!("/proc/{pid}/{kind}_map");
            let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
            root_outside(&text).with_context(|| format!("{path}: it maps no id to root"))
        };
        Ok(Self { root, user: outside("uid")?, group: outside("gid")? })
    }

    #[cfg(test)]
    pub(super) fn of_dir(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())?;
        Ok(Self { root, user: 0, group: 0 })
    }

    /// Files created from now on belong to the container's root. This thread keeps its
    /// capabilities.
    pub(super) fn take_its_ids(&self) -> Result<()> {
        if (self.user, self.group) == (0, 0) {
            return Ok(());
        }
        let taken = set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)
            .and_then(|()| set_thread_res_gid(None, Gid::from_raw(self.group), None))
            .and_then(|()| set_thread_res_uid(None, Uid::from_raw(self.user), None));
        taken.with_context(|| format!("write as user {}, the container's root", self.user))
    }

    /// The file at a path, symlinks within the container followed; None if there is none.
    pub(super) fn find(&self, path: &str) -> Result<Option<OwnedFd>> {
        match self.resolve(path, OFlags::PATH) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => bail!("{path} in the container: {errno}"),
        }
    }

    /// Where a copy goes: into the directory at the path, else to the path's own name in its parent
    /// directory.
    pub(super) fn target(&self, path: &str, own: Option<&OsStr>) -> Result<CopyTarget> {
        if let Some(found) = self.find(path)? {
            let stat = fstat(&found).with_context(|| path.to_owned())?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let name = own.unwrap_or_default().to_owned();
                return Ok(CopyTarget { dir: found, name });
            }
        }
        if path.ends_with('/') {
            bail!("{path} is no directory in the container");
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = if above.is_empty() { "/" } else { above };
        let dir = self.resolve(above, OFlags::PATH | OFlags::DIRECTORY);
        let dir = dir.map_err(|errno| anyhow::anyhow!("{above} in the container: {errno}"))?;
        if matches!(name, "" | "." | "..") {
            bail!("{path}: expected a name at its end");
        }
        Ok(CopyTarget { dir, name: name.into() })
    }

    fn resolve(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = if path.is_empty() { "/" } else { path };
        let mut tries = TRIES;
        loop {
            match openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if tries > 0 => tries -= 1,
                answer => return answer,
            }
        }
    }
}
