//! Copies a file or a directory between two opened places.
//!
//! Rule: below the two ends no symlink is ever followed: every step is one name in an open
//! directory, so that neither side can be moved meanwhile. The file type is checked before the file
//! is opened: a pipe does not block and a device does nothing. An existing file is overwritten in
//! place, an existing symlink is refused.

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, open, openat, readlinkat,
    statat, symlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Deeper trees than this are an attack.
const MAX_DEPTH: usize = 256;
const PERMISSIONS: u32 = 0o777;

/// A name in a directory: the target of a copy.
#[derive(Debug)]
pub(super) struct CopyTarget {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

/// One run of copying.
#[derive(Debug, Default)]
pub(super) struct TreeCopy {
    /// Out of a container: symlinks are skipped.
    pub(super) is_outward: bool,
    pub(super) files: u64,
    pub(super) dirs: u64,
    /// What was skipped, and why.
    pub(super) skipped: Vec<String>,
    pub(super) depth: usize,
}

/// A local path, its own symlinks followed.
pub(super) fn local_source(path: &Path) -> Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("open {}", path.display()))
}

/// The local target of a copy: into the directory at the path, else under its own name.
pub(super) fn local_target(path: &Path, own: Option<&OsStr>) -> Result<CopyTarget> {
    let held = |dir: &Path| {
        open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("open the directory {}", dir.display()))
    };
    if path.is_dir() {
        let name = own.with_context(|| format!("say a name in {}", path.display()))?;
        return Ok(CopyTarget { dir: held(path)?, name: name.to_owned() });
    }
    let name = path.file_name().with_context(|| format!("{}: no name", path.display()))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above: PathBuf = above.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    Ok(CopyTarget { dir: held(&above)?, name: name.to_owned() })
}

impl TreeCopy {
    /// Copies `source` (an `O_PATH` descriptor); `shown` names it in messages.
    pub(super) fn copy(
        &mut self,
        source: &OwnedFd,
        target: &CopyTarget,
        shown: &str,
    ) -> Result<()> {
        let stat = fstat(source).with_context(|| shown.to_owned())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(source, &stat, target, shown),
            FileType::Directory => self.dir(source, &stat, target, shown),
            FileType::Symlink if !self.is_outward => symlink(source, target, shown),
            FileType::Symlink => {
                self.skipped.push(format!("{shown} is a symlink and stays behind"));
                Ok(())
            }
            _ => {
                self.skipped.push(format!("{shown} is neither a file nor a directory"));
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        source: &OwnedFd,
        stat: &Stat,
        target: &CopyTarget,
        shown: &str,
    ) -> Result<()> {
        let mut from = reopen(source, OFlags::RDONLY).with_context(|| format!("open {shown}"))?;
        let mut to = create(target, stat)
            .with_context(|| format!("write {} of {shown}", target.name.display()))?;
        std::io::copy(&mut from, &mut to).with_context(|| format!("copy {shown}"))?;
        self.files += 1;
        Ok(())
    }

    fn dir(
        &mut self,
        source: &OwnedFd,
        stat: &Stat,
        target: &CopyTarget,
        shown: &str,
    ) -> Result<()> {
        ensure!(self.depth < MAX_DEPTH, "{shown}: more than {MAX_DEPTH} nested directories");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(source, ".", flags, Mode::empty())
            .with_context(|| format!("open the directory {shown}"))?;
        let made = make_dir(target).with_context(|| {
            format!("create the directory {} for {shown}", target.name.display())
        })?;
        self.depth += 1;
        for name in names(&listed).with_context(|| format!("list {shown}"))? {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let child = match openat(&listed, &name, flags, Mode::empty()) {
                Ok(child) => child,
                // It was removed meanwhile.
                Err(Errno::NOENT) => continue,
                Err(errno) => bail!("{shown}/{}: {errno}", name.display()),
            };
            let dir = made.as_fd().try_clone_to_owned()?;
            let shown = format!("{shown}/{}", name.display());
            self.copy(&child, &CopyTarget { dir, name }, &shown)?;
        }
        self.depth -= 1;
        let mode = Mode::from_raw_mode(stat.st_mode & PERMISSIONS);
        let held = openat(&made, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        fchmod(&held, mode).with_context(|| format!("set the mode of {shown}"))?;
        self.dirs += 1;
        Ok(())
    }
}

fn symlink(source: &OwnedFd, target: &CopyTarget, shown: &str) -> Result<()> {
    let leads_to = readlinkat(source, "", Vec::new()).with_context(|| shown.to_owned())?;
    match symlinkat(&leads_to, &target.dir, &target.name) {
        Err(Errno::EXIST) => {
            let there = readlinkat(&target.dir, &target.name, Vec::new());
            ensure!(there == Ok(leads_to), "{shown}: something else is there already");
            Ok(())
        }
        made => made.with_context(|| format!("make the symlink {shown}")),
    }
}

fn names(dir: &OwnedFd) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort();
    Ok(names)
}

/// Opens the inode of an `O_PATH` descriptor, even if its name has changed.
fn reopen(found: &OwnedFd, flags: OFlags) -> Result<File> {
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(open(link, flags, Mode::empty())?))
}

/// Creates the file, or truncates the existing one.
fn create(target: &CopyTarget, stat: &Stat) -> Result<File> {
    one_name(&target.name)?;
    let mode = Mode::from_raw_mode(stat.st_mode & PERMISSIONS);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&target.dir, &target.name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(made) => {
            // The full mode from the start, whatever the umask is.
            fchmod(&made, mode)?;
            return Ok(File::from(made));
        }
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(&target.dir, &target.name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(fstat(&there)?.st_mode);
    ensure!(kind == FileType::RegularFile, "what is there is no regular file; it is left alone");
    reopen(&there, OFlags::WRONLY | OFlags::TRUNC)
}

fn make_dir(target: &CopyTarget) -> Result<OwnedFd> {
    one_name(&target.name)?;
    match mkdirat(&target.dir, &target.name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let there = statat(&target.dir, &target.name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(there.st_mode);
    ensure!(kind == FileType::Directory, "the existing file is no directory; it is left alone");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(&target.dir, &target.name, flags, Mode::empty())?)
}

fn one_name(name: &OsStr) -> Result<()> {
    let bytes = name.as_bytes();
    let is_name = !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/');
    ensure!(is_name, "{:?} is no name", name.display().to_string());
    Ok(())
}
