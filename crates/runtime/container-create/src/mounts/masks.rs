//! Masked and read-only paths of a container.
//!
//! Rule: a path is masked with a null device or an empty directory that was created for this
//! container and is mounted read-only: never with a file of the image, and never with an inode of
//! the host, whose mode and owner root in the container could change. A path that does not exist
//! needs no mask.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::mount::MountAttrFlags;

use crate::error::{CreateError, During, Result};
use crate::mounts::{detached_copy, detached_filesystem, label_option, move_onto};
use crate::nodes::{DeviceInode, DeviceInodes, read_only};
use crate::null_device::require_null;
use crate::paths::{ContainerRoot, is_dir};
use crate::system::{MountChange, change_mount};

/// The detached mounts that files and directories are masked with.
pub(crate) struct MaskSource {
    file: Option<MaskMount>,
    dir: Option<MaskMount>,
}

/// A mount that is moved to its first target and copied from there: the kernel does not copy a
/// detached mount.
struct MaskMount {
    tree: OwnedFd,
    placed: Cell<bool>,
}

impl MaskMount {
    fn new(tree: OwnedFd) -> Self {
        Self { tree, placed: Cell::new(false) }
    }

    fn move_to(&self, mount_point: &OwnedFd) -> std::io::Result<()> {
        if self.placed.replace(true) {
            return move_onto(detached_copy(&self.tree, false)?, mount_point);
        }
        move_onto(&self.tree, mount_point)
    }
}

impl MaskSource {
    /// Runs as the host's root. If no nodes can be created, an empty file is used instead.
    pub(crate) fn new(nodes: &DeviceInodes, needed: bool) -> Result<Self> {
        if !needed {
            return Ok(Self { file: None, dir: None });
        }
        let file = match nodes.node("null", DeviceInode::null()) {
            Ok(null) => {
                require_null(&null)?;
                read_only(null)?
            }
            Err(_) => nodes.empty_file("null")?,
        };
        Ok(Self { file: Some(MaskMount::new(file)), dir: None })
    }

    /// Runs inside, before the host's filesystems are out of reach.
    pub(crate) fn mount_private(&mut self, label: &str) -> Result<()> {
        if self.file.is_some() {
            let options = ["size=4k".to_owned(), "nr_inodes=2".to_owned(), "mode=755".to_owned()];
            let options: Vec<String> =
                options.into_iter().chain(label_option("tmpfs", label)).collect();
            let flags = MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            self.dir = Some(MaskMount::new(detached_filesystem("tmpfs", &options, flags)?));
        }
        Ok(())
    }

    /// The raw descriptors it holds.
    pub(crate) fn raw_fds(&self) -> impl Iterator<Item = RawFd> {
        [self.file.as_ref(), self.dir.as_ref()]
            .into_iter()
            .flatten()
            .map(|one| one.tree.as_raw_fd())
    }

    /// Runs inside, after all mounts.
    pub(crate) fn mask(&self, root: &ContainerRoot, path: &str) -> Result<()> {
        let Some(mount_point) = find(root, path)? else { return Ok(()) };
        let cover = if is_dir(&mount_point)? { &self.dir } else { &self.file };
        let cover = cover.as_ref().ok_or_else(|| CreateError::other("nothing to mask with"))?;
        cover.move_to(&mount_point).during(format_args!("masking {path}"))
    }
}

/// Follows links inside the root, but not in kernel filesystems, which have no links that a mask
/// could mean.
fn find(root: &ContainerRoot, path: &str) -> Result<Option<OwnedFd>> {
    if !path.starts_with('/') {
        return Err(CreateError::invalid_spec(format!(
            "{path:?} (masked or read-only) is not an absolute path"
        )));
    }
    let kernel = path.starts_with("/proc/") || path.starts_with("/sys/");
    let found = if kernel { root.find_without_links(path) } else { root.find(path) };
    match found {
        Ok(mount_point) => Ok(Some(mount_point)),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).during(format_args!("opening {path} to mask it")),
    }
}

/// Runs inside, after all mounts.
pub(crate) fn make_read_only(root: &ContainerRoot, path: &str) -> Result<()> {
    let Some(mount_point) = find(root, path)? else { return Ok(()) };
    let copy = detached_copy(&mount_point, true)
        .during(format_args!("copying {path} to make it read-only"))?;
    let change =
        MountChange { set: libc::MOUNT_ATTR_RDONLY, recursive: true, ..MountChange::default() };
    change_mount(copy.as_fd(), change).during(format_args!("making {path} read-only"))?;
    move_onto(&copy, &mount_point).during(format_args!("making {path} read-only"))
}
