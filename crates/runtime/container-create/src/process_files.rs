//! A private `/proc`: nothing is mounted over it, and no link in it is followed.
//!
//! Rule: every write to a file of `/proc` goes through here, so that a container cannot redirect it
//! (a label written into a sysctl, a sysctl written to nowhere).

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::error::{CreateError, During, Result};

/// `f_type` of procfs.
const PROC_MAGIC: i64 = 0x9fa0;

/// A procfs without any mounts over it.
#[derive(Debug)]
pub struct ProcessFiles {
    dir: OwnedFd,
}

impl ProcessFiles {
    /// Of this process's PID namespace.
    pub fn open() -> Result<Self> {
        let dir = Self::private().or_else(|_| Self::visible())?;
        let magic = rustix::fs::fstatfs(&dir).during("looking at /proc")?.f_type;
        if magic as i64 != PROC_MAGIC {
            return Err(CreateError::other("/proc is not a procfs"));
        }
        Ok(Self { dir })
    }

    fn private() -> Result<OwnedFd> {
        let step = "making a procfs";
        let filesystem = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).during(step)?;
        rustix::mount::fsconfig_create(&filesystem).during(step)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_NODEV;
        rustix::mount::fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes).during(step)
    }

    /// The host's own, if no new one may be mounted. Overmounts are refused when a file is opened.
    fn visible() -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open("/proc", flags, Mode::empty()).during("opening /proc")
    }

    pub fn open_file(&self, path: &str, flags: OFlags) -> std::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_XDEV
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), resolve).map_err(Into::into)
    }

    /// Writes the whole value at once.
    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        let file = self
            .open_file(path, OFlags::WRONLY)
            .during(format_args!("opening /proc/{path} for {value:?}"))?;
        loop {
            match rustix::io::write(&file, value.as_bytes()) {
                Ok(count) if count == value.len() => return Ok(()),
                Ok(_) => return Err(CreateError::other(format!("/proc/{path} took only a part"))),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(errno).during(format_args!("writing {value:?} to /proc/{path}"));
                }
            }
        }
    }

    /// A namespace of a process. The file is a magic link, but of the kernel's own procfs.
    pub fn namespace(&self, pid: u32, name: &str) -> Result<OwnedFd> {
        let dir = self
            .open_file(&format!("{pid}/ns"), OFlags::PATH | OFlags::DIRECTORY)
            .during(format_args!("opening /proc/{pid}/ns"))?;
        rustix::fs::openat(&dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .during(format_args!("opening /proc/{pid}/ns/{name}"))
    }

    /// The fields of `stat` after the name: the first is the state.
    fn stat(&self, pid: u32) -> Option<Vec<String>> {
        let file = self.open_file(&format!("{pid}/stat"), OFlags::RDONLY).ok()?;
        let mut text = [0; 1024];
        let count = rustix::io::read(&file, &mut text).ok()?;
        let text = String::from_utf8_lossy(text.get(..count)?).into_owned();
        // The name in parentheses may contain anything; the fields after it do not.
        Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
    }

    /// When a process started, in clock ticks since boot.
    pub fn start_ticks(&self, pid: u32) -> Option<u64> {
        self.stat(pid)?.get(19)?.parse().ok()
    }

    /// The wait status of a zombie process.
    pub fn unreaped_status(&self, pid: u32, start_ticks: u64) -> Option<i32> {
        let fields = self.stat(pid)?;
        let same = fields.get(19)?.parse() == Ok(start_ticks);
        let ended = fields.first()? == "Z";
        fields.get(49).filter(|_| same && ended)?.parse().ok()
    }

    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }
}
