//! A directory held open, and everything below it reached from there.
//!
//! Rule: the path above a [`OpenDir`] is the administrator's and its symlinks are followed; below it
//! the kernel itself (openat2) refuses to leave, and refuses symlinks unless they are asked for.
//! Opening never blocks on a FIFO and never opens a device: the type is checked first (O_PATH).

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::path_error::{PathError, PathErrorExt as _};

/// A rename elsewhere in the tree makes openat2 return EAGAIN; this many retries suffice without an
/// attack.
const MAX_ATTEMPTS: usize = 64;
/// The kernel's limit of one name.
const MAX_NAME_BYTES: usize = 255;

/// How symlinks below a directory are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymlinkPolicy {
    Refused,
    /// Followed as long as they stay below the directory.
    Within,
}

#[derive(Debug)]
pub struct OpenDir {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl OpenDir {
    /// Opens a directory that the administrator named.
    pub fn open(path: &Path) -> Result<Self, PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).operation("open the directory", path)?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Opens a directory that the administrator named, creating it and its parents if they are
    /// missing.
    pub fn make(path: &Path, mode: u32) -> Result<Self, PathError> {
        match Self::open(path) {
            Err(path_error) if path_error.is_missing() => {}
            done => return done,
        }
        let Some((parent, name)) = path.parent().zip(path.file_name()) else {
            return Self::open(path);
        };
        let parent = Self::make(parent, mode)?;
        make_one(&parent, name, mode)?;
        Self::open(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn path_of(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path.join(relative)
    }

    /// Opens a path below the directory, never leaving it.
    pub fn open_below(
        &self,
        relative: impl AsRef<Path>,
        flags: OFlags,
        symlinks: SymlinkPolicy,
    ) -> Result<OwnedFd, PathError> {
        let relative = relative.as_ref();
        self.resolve(relative, flags, symlinks).operation("open", &self.path_of(relative))
    }

    pub(crate) fn resolve(
        &self,
        relative: &Path,
        flags: OFlags,
        symlinks: SymlinkPolicy,
    ) -> Result<OwnedFd, Errno> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if symlinks == SymlinkPolicy::Refused {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        open_resolved(self.as_fd(), relative, flags, resolve)
    }

    /// Opens a directory below. No symlink is followed.
    pub fn dir(&self, relative: impl AsRef<Path>) -> Result<Self, PathError> {
        let relative = relative.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let descriptor = self
            .resolve(relative, flags, SymlinkPolicy::Refused)
            .operation("open the directory", &self.path_of(relative))?;
        Ok(Self { descriptor, path: self.path_of(relative) })
    }

    /// Opens a directory below, creating what is missing with exactly this mode.
    pub fn make_dir(&self, relative: impl AsRef<Path>, mode: u32) -> Result<Self, PathError> {
        let mut here = self.dir(".")?;
        here.path = self.path.clone();
        for part in relative.as_ref().components() {
            let name = part.as_os_str();
            check_name(name).map_err(|reason| {
                PathError::refused(
                    "create the directory",
                    &self.path_of(relative.as_ref()),
                    &reason.to_string(),
                )
            })?;
            here = make_one(&here, name, mode)?;
        }
        Ok(here)
    }

    /// Metadata of a path below, without following a symlink at its end.
    pub fn stat(&self, relative: impl AsRef<Path>) -> Result<Option<Stat>, PathError> {
        let relative = relative.as_ref();
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let found = match self.resolve(relative, flags, SymlinkPolicy::Within) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(PathError::new("look at", &self.path_of(relative), errno)),
        };
        rustix::fs::fstat(&found).map(Some).operation("look at", &self.path_of(relative))
    }

    /// Names in this directory, sorted; more than `max_names` is an error.
    pub fn names(&self, max_names: usize) -> Result<Vec<OsString>, PathError> {
        let mut names = Vec::new();
        let dir = rustix::fs::Dir::read_from(self).operation("list", &self.path)?;
        for entry in dir {
            let entry = entry.operation("list", &self.path)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == max_names {
                let reason = format!("more than {max_names} names in it");
                return Err(PathError::refused("list", &self.path, &reason));
            }
            names.push(OsString::from_vec(name.to_vec()));
        }
        names.sort();
        Ok(names)
    }

    /// Reads a whole regular file below; one of `limit` bytes or more is an error.
    pub fn read(
        &self,
        relative: impl AsRef<Path>,
        symlinks: SymlinkPolicy,
        limit: usize,
    ) -> Result<Vec<u8>, PathError> {
        let relative = relative.as_ref();
        let path = self.path_of(relative);
        let file = self.open_regular(relative, symlinks)?;
        let mut content = Vec::new();
        file.take(limit as u64).read_to_end(&mut content).operation("read", &path)?;
        if content.len() >= limit {
            let reason = format!("too long: {limit} bytes or more");
            return Err(PathError::refused("read", &path, &reason));
        }
        Ok(content)
    }

    /// Opens a regular file below for reading. Anything else is an error without being opened, so
    /// that a FIFO does not block and a device does nothing.
    pub fn open_regular(
        &self,
        relative: impl AsRef<Path>,
        symlinks: SymlinkPolicy,
    ) -> Result<std::fs::File, PathError> {
        let relative = relative.as_ref();
        let path = self.path_of(relative);
        let found = self.resolve(relative, OFlags::PATH, symlinks).operation("open", &path)?;
        reopen_regular(&found, &path)
    }

    pub fn sync(&self) -> Result<(), PathError> {
        rustix::fs::fsync(self).operation("fsync the directory", &self.path)
    }
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Opens the file of an O_PATH descriptor for reading, if it is a regular file.
fn reopen_regular(found: &OwnedFd, path: &Path) -> Result<std::fs::File, PathError> {
    let stat = rustix::fs::fstat(found).operation("look at", path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        let reason = format!("not a regular file but {}", kind_name(kind));
        return Err(PathError::refused("read", path, &reason));
    }
    // The magic link leads to this very inode, even if the name was swapped.
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(found));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, link, flags, Mode::empty()).operation("open", path)?;
    Ok(file.into())
}

pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown kind",
    }
}

pub(crate) fn open_resolved(
    dir: BorrowedFd<'_>,
    relative: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let flags = flags | OFlags::CLOEXEC;
    let mut tries = MAX_ATTEMPTS;
    loop {
        match rustix::fs::openat2(dir, relative, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries > 0 => tries -= 1,
            answer => return answer,
        }
    }
}

fn make_one(parent: &OpenDir, name: &OsStr, mode: u32) -> Result<OpenDir, PathError> {
    let path = parent.path_of(name);
    let made = match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(PathError::new("create the directory", &path, errno)),
    };
    let dir = parent.dir(name)?;
    if made {
        // The umask may have cleared bits.
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode)).operation("set the mode of", &path)?;
    }
    Ok(dir)
}

/// Why a text is not valid as one name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileNameError {
    #[error("an empty name")]
    Empty,
    #[error("{name:?} is not a name")]
    Dots { name: String },
    #[error("a name of {bytes} bytes; {MAX_NAME_BYTES} is the most")]
    TooLong { bytes: usize },
    #[error("{name:?} is not one name")]
    Separator { name: String },
}

/// Whether a text is valid as one name in a directory.
pub fn check_name(name: impl AsRef<OsStr>) -> Result<(), FileNameError> {
    let bytes = name.as_ref().as_bytes();
    let shown = || String::from_utf8_lossy(bytes).into_owned();
    match bytes {
        b"" => Err(FileNameError::Empty),
        b"." | b".." => Err(FileNameError::Dots { name: shown() }),
        _ if bytes.len() > MAX_NAME_BYTES => Err(FileNameError::TooLong { bytes: bytes.len() }),
        _ if bytes.contains(&b'/') || bytes.contains(&0) => {
            Err(FileNameError::Separator { name: shown() })
        }
        _ => Ok(()),
    }
}

impl OpenDir {
    pub(crate) fn of(descriptor: OwnedFd, path: PathBuf) -> Self {
        Self { descriptor, path }
    }
}
