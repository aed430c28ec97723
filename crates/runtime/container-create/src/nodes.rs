//! Device nodes of a container's own, made with the machine's rights.
//!
//! Rule: what covers a path, and what a pod with a user namespace finds in its `/dev`, is an inode that
//! no one else has: whoever may change its mode, owner or times changes nothing of the machine. The
//! nodes lie on a tmpfs in a mount namespace that only this process sees, because the kernel copies no
//! mount that is nowhere; each is handed out as a detached mount. Where nodes cannot be made, the error
//! says so, and the caller chooses what stands in.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::mount::{MountAttrFlags, UnmountFlags};

use crate::error::{During, Result, Trouble};
use crate::mounts::{
    detached_copy, detached_filesystem, label_option, move_onto, part_from_machine,
};
use crate::system::{MountChange, change_mount};

/// A node that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) kind: FileType,
    pub(crate) number: u64,
    pub(crate) mode: u32,
    /// On the machine.
    pub(crate) owner: (u32, u32),
}

impl Node {
    /// For everybody to read and write.
    pub(crate) fn standard(major: u32, minor: u32, owner: (u32, u32)) -> Self {
        let number = rustix::fs::makedev(major, minor);
        Self { kind: FileType::CharacterDevice, number, mode: 0o666, owner }
    }

    pub(crate) fn null() -> Self {
        Self::standard(1, 3, (0, 0))
    }
}

/// Where the nodes lie.
pub(crate) struct Nodes {
    table: OwnedFd,
    before: OwnedFd,
    count: std::cell::Cell<u32>,
}

impl Nodes {
    /// Runs as the machine's root; parts from the machine's mount namespace. `label` is SELinux's, of the
    /// container's files.
    pub(crate) fn open(label: &str, count: usize) -> Result<Self> {
        let root = part_from_machine()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let before = rustix::fs::open(".", flags, Mode::empty()).during("opening a folder")?;
        // Each node lies in a folder of its own.
        let inodes = format!("nr_inodes={}", count.saturating_mul(2).saturating_add(8));
        let options = ["size=4k".to_owned(), inodes, "mode=755".to_owned()];
        let options: Vec<String> =
            options.into_iter().chain(label_option("tmpfs", label)).collect();
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let table = detached_filesystem("tmpfs", &options, flags)?;
        move_onto(&table, &root).during("mounting a place for device nodes")?;
        Ok(Self { table, before, count: std::cell::Cell::new(0) })
    }

    /// A new node as a detached mount. `name` is what the mount table shows of it.
    pub(crate) fn node(&self, name: &str, node: Node) -> Result<OwnedFd> {
        let step = format!("making the device node {name}");
        let folder = self.folder().during(&step)?;
        let mode = Mode::from_raw_mode(node.mode & 0o7777);
        rustix::fs::mknodat(&folder, name, node.kind, mode, node.number).during(&step)?;
        let (uid, gid) = (Uid::from_raw(node.owner.0), Gid::from_raw(node.owner.1));
        rustix::fs::chownat(&folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .during(&step)?;
        // The umask is not asked, and a change of the owner takes bits away.
        rustix::fs::chmodat(&folder, name, mode, AtFlags::empty()).during(&step)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&folder, name, flags, Mode::empty()).during(&step)?;
        let stat = rustix::fs::fstat(&made).during(&step)?;
        let is_fifo = node.kind == FileType::Fifo;
        if FileType::from_raw_mode(stat.st_mode) != node.kind
            || (!is_fifo && stat.st_rdev != node.number)
        {
            return Err(Trouble::other(format!("{step}: it is another device")));
        }
        detached_copy(&made, false).during(&step)
    }

    /// An empty file as a detached mount that is read-only.
    pub(crate) fn empty_file(&self, name: &str) -> Result<OwnedFd> {
        let step = "making an empty file";
        let folder = self.folder().during(step)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o444);
        let made = rustix::fs::openat(&folder, name, flags, mode).during(step)?;
        read_only(detached_copy(&made, false).during(step)?)
    }

    fn folder(&self) -> std::io::Result<OwnedFd> {
        let name = self.count.get().to_string();
        self.count.set(self.count.get() + 1);
        rustix::fs::mkdirat(&self.table, name.as_str(), Mode::from_raw_mode(0o755))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.table, name.as_str(), flags, Mode::empty()).map_err(Into::into)
    }

    /// Takes the tmpfs out of the mount table; what was handed out stays.
    pub(crate) fn close(self) -> Result<()> {
        let step = "unmounting the place for device nodes";
        rustix::process::fchdir(&self.table).during(step)?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).during(step)?;
        rustix::process::fchdir(&self.before).during(step)
    }
}

/// The mount shows what it is of, and nothing of that can be changed through it.
pub(crate) fn read_only(tree: OwnedFd) -> Result<OwnedFd> {
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    change_mount(tree.as_fd(), MountChange { set, ..MountChange::default() })
        .during("making a mount read-only")?;
    Ok(tree)
}
