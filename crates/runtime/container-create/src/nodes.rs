//! Private device nodes of a container, created with the host's privileges.
//!
//! Rule: masks, and the nodes in the `/dev` of a pod with a user namespace, are inodes of their
//! own: changing their mode, owner or times changes nothing of the host. The nodes are on a tmpfs
//! in a private mount namespace, because the kernel does not copy a detached mount; each is handed
//! out as a detached mount. If nodes cannot be created, the error says so, and the caller chooses a
//! substitute.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::mount::{MountAttrFlags, UnmountFlags};

use crate::error::{CreateError, During, Result};
use crate::mounts::{
    detached_copy, detached_filesystem, enter_mount_namespace, label_option, move_onto,
};
use crate::system::{MountChange, change_mount};

/// A node to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceInode {
    pub(crate) kind: FileType,
    pub(crate) number: u64,
    pub(crate) mode: u32,
    /// Ids on the host.
    pub(crate) owner: (u32, u32),
}

impl DeviceInode {
    /// Readable and writable for all users.
    pub(crate) fn standard(major: u32, minor: u32, owner: (u32, u32)) -> Self {
        let number = rustix::fs::makedev(major, minor);
        Self { kind: FileType::CharacterDevice, number, mode: 0o666, owner }
    }

    pub(crate) fn null() -> Self {
        Self::standard(1, 3, (0, 0))
    }
}

/// The tmpfs with the nodes.
pub(crate) struct DeviceInodes {
    mount_table: OwnedFd,
    original_root: OwnedFd,
    count: std::cell::Cell<u32>,
}

impl DeviceInodes {
    /// Runs as the host's root; enters a new mount namespace. `label` is the SELinux label of the
    /// container's files.
    pub(crate) fn open(label: &str, count: usize) -> Result<Self> {
        let root = enter_mount_namespace()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let original_root =
            rustix::fs::open(".", flags, Mode::empty()).during("opening a directory")?;
        // Each node has a directory of its own.
        let inodes = format!("nr_inodes={}", count.saturating_mul(2).saturating_add(8));
        let options = ["size=4k".to_owned(), inodes, "mode=755".to_owned()];
        let options: Vec<String> =
            options.into_iter().chain(label_option("tmpfs", label)).collect();
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let mount_table = detached_filesystem("tmpfs", &options, flags)?;
        move_onto(&mount_table, &root).during("mounting a place for device nodes")?;
        Ok(Self { mount_table, original_root, count: std::cell::Cell::new(0) })
    }

    /// A new node as a detached mount. `name` is shown in the mount table.
    pub(crate) fn node(&self, name: &str, node: DeviceInode) -> Result<OwnedFd> {
        let step = format!("making the device node {name}");
        let dir = self.dir().during(&step)?;
        let mode = Mode::from_raw_mode(node.mode & 0o7777);
        rustix::fs::mknodat(&dir, name, node.kind, mode, node.number).during(&step)?;
        let (uid, gid) = (Uid::from_raw(node.owner.0), Gid::from_raw(node.owner.1));
        rustix::fs::chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .during(&step)?;
        // mknod(2) applies the umask, and a change of the owner clears mode bits.
        rustix::fs::chmodat(&dir, name, mode, AtFlags::empty()).during(&step)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&dir, name, flags, Mode::empty()).during(&step)?;
        let stat = rustix::fs::fstat(&made).during(&step)?;
        let is_fifo = node.kind == FileType::Fifo;
        if FileType::from_raw_mode(stat.st_mode) != node.kind
            || (!is_fifo && stat.st_rdev != node.number)
        {
            return Err(CreateError::other(format!("{step}: it is another device")));
        }
        detached_copy(&made, false).during(&step)
    }

    /// An empty file as a detached read-only mount.
    pub(crate) fn empty_file(&self, name: &str) -> Result<OwnedFd> {
        let step = "making an empty file";
        let dir = self.dir().during(step)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o444);
        let made = rustix::fs::openat(&dir, name, flags, mode).during(step)?;
        read_only(detached_copy(&made, false).during(step)?)
    }

    fn dir(&self) -> std::io::Result<OwnedFd> {
        let name = self.count.get().to_string();
        self.count.set(self.count.get() + 1);
        rustix::fs::mkdirat(&self.mount_table, name.as_str(), Mode::from_raw_mode(0o755))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.mount_table, name.as_str(), flags, Mode::empty())
            .map_err(Into::into)
    }

    /// Removes the tmpfs from the mount table; detached mounts of it stay valid.
    pub(crate) fn close(self) -> Result<()> {
        let step = "unmounting the place for device nodes";
        rustix::process::fchdir(&self.mount_table).during(step)?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).during(step)?;
        rustix::process::fchdir(&self.original_root).during(step)
    }
}

/// Makes the mount read-only, so that its inode cannot be changed through it.
pub(crate) fn read_only(tree: OwnedFd) -> Result<OwnedFd> {
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    change_mount(tree.as_fd(), MountChange { set, ..MountChange::default() })
        .during("making a mount read-only")?;
    Ok(tree)
}
