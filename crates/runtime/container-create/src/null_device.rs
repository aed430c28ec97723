//! A pod's own null device: the standard streams of processes that have no others.
//!
//! Rule: never an inode of the host, because root in a container may change the mode and the owner
//! of any file that it has open. The node is on a detached, read-only tmpfs, so that no process of
//! the pod can change it either. If nodes cannot be created, it is the host's, opened through a
//! private read-only mount, which protects its mode and times.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::mount::MountAttrFlags;

use crate::error::{CreateError, During, Result};
use crate::mounts::{detached_copy, detached_filesystem};
use crate::system::{MountChange, change_mount};

#[cfg(test)]
mod tests;

const PATH: &str = "/dev/null";
const LABEL: &str = "security.selinux";
const MAX_LABEL_LENGTH: usize = 4096;

/// Created once per pod, opened for each process.
#[derive(Debug)]
pub struct NullDevice(NullSource);

#[derive(Debug)]
enum NullSource {
    /// The root of a tmpfs.
    Private(OwnedFd),
    /// A read-only mount of the host's node.
    Machine(OwnedFd),
}

impl NullDevice {
    /// Runs as the host's root, in its mount namespace.
    pub fn new() -> Result<Self> {
        match Self::make() {
            Ok(own) => Ok(own),
            Err(_) => Self::of_machine(),
        }
    }

    /// Named as in a container, so that `/proc/self/fd/0` shows the usual path.
    fn make() -> Result<Self> {
        let step = "making a null device";
        let options = ["size=4k", "nr_inodes=4", "mode=755"].map(str::to_owned);
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = detached_filesystem("tmpfs", &options, flags)?;
        rustix::fs::mkdirat(&root, "dev", Mode::from_raw_mode(0o755)).during(step)?;
        let number = rustix::fs::makedev(1, 3);
        let mode = Mode::from_raw_mode(0o666);
        let own = PATH.trim_start_matches('/');
        rustix::fs::mknodat(&root, own, FileType::CharacterDevice, mode, number).during(step)?;
        // mknod(2) applies the umask.
        rustix::fs::chmodat(&root, own, mode, AtFlags::empty()).during(step)?;
        let node = open_within(&root, OFlags::RDONLY).during(step)?;
        require_null(&node)?;
        copy_label(&node);
        drop(node);
        make_read_only(&root)?;
        Ok(Self(NullSource::Private(root)))
    }

    fn of_machine() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let null = rustix::fs::open(PATH, flags, Mode::empty()).during("opening /dev/null")?;
        require_null(&null)?;
        let tree = detached_copy(&null, false).during("copying the mount of /dev/null")?;
        make_read_only(&tree)?;
        Ok(Self(NullSource::Machine(tree)))
    }

    /// A new open file. Runs in the host's mount namespace.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        match &self.0 {
            NullSource::Private(root) => open_within(root, flags),
            NullSource::Machine(tree) => {
                let path = format!("/proc/self/fd/{}", tree.as_raw_fd());
                let null = rustix::fs::open(path, flags, Mode::empty())?;
                require_null(&null).map_err(io::Error::other)?;
                Ok(null)
            }
        }
    }
}

fn open_within(root: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, PATH.trim_start_matches('/'), flags, Mode::empty()).map_err(Into::into)
}

fn make_read_only(tree: &OwnedFd) -> Result<()> {
    let change = MountChange { set: libc::MOUNT_ATTR_RDONLY, ..MountChange::default() };
    change_mount(tree.as_fd(), change).during("making a null device read-only")
}

/// The label of the host's null device, as SELinux policies expect it; without SELinux there is
/// none.
fn copy_label(node: &OwnedFd) {
    let mut label = [0; MAX_LABEL_LENGTH];
    let Ok(length) = rustix::fs::getxattr(PATH, LABEL, &mut label) else { return };
    if let Some(label) = label.get(..length) {
        let _ = rustix::fs::fsetxattr(node, LABEL, label, XattrFlags::empty());
    }
}

/// An error unless it is character device 1:3, whatever its name.
pub(crate) fn require_null(descriptor: &OwnedFd) -> Result<()> {
    let stat = rustix::fs::fstat(descriptor).during("looking at a null device")?;
    let numbers = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || numbers != (1, 3) {
        return Err(CreateError::other("/dev/null is not the null device (character device 1:3)"));
    }
    Ok(())
}
