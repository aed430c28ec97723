//! A directory held open, and everything below it reached from there.
//!
//! Rule: the path above a [`Folder`] is the administrator's and its symlinks are followed; below it
//! the kernel itself (openat2) refuses to leave, and refuses symlinks unless they are asked for.
//! Opening never blocks on a FIFO and never opens a device: the type is checked first (O_PATH).

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::trouble::{Doing as _, Trouble};

/// A rename elsewhere in the tree makes openat2 return EAGAIN; this many retries suffice without an
/// attack.
const TRIES: usize = 64;

/// How symlinks below a directory are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    Refused,
    /// Followed as long as they stay below the directory.
    Within,
}

#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory that the administrator named.
    pub fn open(path: &Path) -> Result<Self, Trouble> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).doing("open the directory", path)?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Opens a directory that the administrator named, creating it and its parents if they are
    /// missing.
    pub fn make(path: &Path, mode: u32) -> Result<Self, Trouble> {
        match Self::open(path) {
            Err(trouble) if trouble.is_missing() => {}
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
        links: Links,
    ) -> Result<OwnedFd, Trouble> {
        let relative = relative.as_ref();
        self.resolve(relative, flags, links).doing("open", &self.path_of(relative))
    }

    pub(crate) fn resolve(
        &self,
        relative: &Path,
        flags: OFlags,
        links: Links,
    ) -> Result<OwnedFd, Errno> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if links == Links::Refused {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        open_resolved(self.as_fd(), relative, flags, resolve)
    }

    /// Opens a directory below. No symlink is followed.
    pub fn folder(&self, relative: impl AsRef<Path>) -> Result<Self, Trouble> {
        let relative = relative.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let descriptor = self
            .resolve(relative, flags, Links::Refused)
            .doing("open the directory", &self.path_of(relative))?;
        Ok(Self { descriptor, path: self.path_of(relative) })
    }

    /// Opens a directory below, creating what is missing with exactly this mode.
    pub fn make_folder(&self, relative: impl AsRef<Path>, mode: u32) -> Result<Self, Trouble> {
        let mut here = self.folder(".")?;
        here.path = self.path.clone();
        for part in relative.as_ref().components() {
            let name = part.as_os_str();
            check_name(name).map_err(|why| {
                Trouble::refused("create the directory", &self.path_of(relative.as_ref()), &why)
            })?;
            here = make_one(&here, name, mode)?;
        }
        Ok(here)
    }

    /// Metadata of a path below, without following a symlink at its end.
    pub fn look(&self, relative: impl AsRef<Path>) -> Result<Option<Stat>, Trouble> {
        let relative = relative.as_ref();
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let found = match self.resolve(relative, flags, Links::Within) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(Trouble::new("look at", &self.path_of(relative), errno)),
        };
        rustix::fs::fstat(&found).map(Some).doing("look at", &self.path_of(relative))
    }

    /// Names in this directory, sorted; more than `most` is an error.
    pub fn names(&self, most: usize) -> Result<Vec<OsString>, Trouble> {
        let mut names = Vec::new();
        let folder = rustix::fs::Dir::read_from(self).doing("list", &self.path)?;
        for entry in folder {
            let entry = entry.doing("list", &self.path)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == most {
                let why = format!("more than {most} names in it");
                return Err(Trouble::refused("list", &self.path, &why));
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
        links: Links,
        limit: usize,
    ) -> Result<Vec<u8>, Trouble> {
        let relative = relative.as_ref();
        let path = self.path_of(relative);
        let file = self.regular(relative, links)?;
        let mut content = Vec::new();
        file.take(limit as u64).read_to_end(&mut content).doing("read", &path)?;
        if content.len() >= limit {
            let why = format!("too long: {limit} bytes or more");
            return Err(Trouble::refused("read", &path, &why));
        }
        Ok(content)
    }

    /// Opens a regular file below for reading. Anything else is an error without being opened, so
    /// that a FIFO does not block and a device does nothing.
    pub fn regular(
        &self,
        relative: impl AsRef<Path>,
        links: Links,
    ) -> Result<std::fs::File, Trouble> {
        let relative = relative.as_ref();
        let path = self.path_of(relative);
        let found = self.resolve(relative, OFlags::PATH, links).doing("open", &path)?;
        reopen_regular(&found, &path)
    }

    pub fn sync(&self) -> Result<(), Trouble> {
        rustix::fs::fsync(self).doing("fsync the directory", &self.path)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Opens the file of an O_PATH descriptor for reading, if it is a regular file.
fn reopen_regular(found: &OwnedFd, path: &Path) -> Result<std::fs::File, Trouble> {
    let stat = rustix::fs::fstat(found).doing("look at", path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        let why = format!("not a regular file but {}", kind_name(kind));
        return Err(Trouble::refused("read", path, &why));
    }
    // The magic link leads to this very inode, even if the name was swapped.
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(found));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, link, flags, Mode::empty()).doing("open", path)?;
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
    folder: BorrowedFd<'_>,
    relative: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let flags = flags | OFlags::CLOEXEC;
    let mut tries = TRIES;
    loop {
        match rustix::fs::openat2(folder, relative, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries > 0 => tries -= 1,
            answer => return answer,
        }
    }
}

fn make_one(parent: &Folder, name: &OsStr, mode: u32) -> Result<Folder, Trouble> {
    let path = parent.path_of(name);
    let made = match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(Trouble::new("create the directory", &path, errno)),
    };
    let folder = parent.folder(name)?;
    if made {
        // The umask may have cleared bits.
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)).doing("set the mode of", &path)?;
    }
    Ok(folder)
}

/// Whether a text is valid as one name in a directory.
pub fn check_name(name: impl AsRef<OsStr>) -> Result<(), String> {
    let bytes = name.as_ref().as_bytes();
    let shown = || String::from_utf8_lossy(bytes).into_owned();
    match bytes {
        b"" => Err("an empty name".to_owned()),
        b"." | b".." => Err(format!("{:?} is not a name", shown())),
        _ if bytes.len() > 255 => Err(format!("a name of {} bytes; 255 is the most", bytes.len())),
        _ if bytes.contains(&b'/') || bytes.contains(&0) => {
            Err(format!("{:?} is not one name", shown()))
        }
        _ => Ok(()),
    }
}

impl Folder {
    pub(crate) fn of(descriptor: OwnedFd, path: PathBuf) -> Self {
        Self { descriptor, path }
    }
}
