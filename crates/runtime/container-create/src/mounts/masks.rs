//! Masked and read-only paths of a container.
//!
//! Rule: a path is masked with a null device or an empty directory that was created for this
//! container and is mounted read-only: never with a file of the image, and never with an inode of
//! the host, whose mode and owner root in the container could change. A path that does not exist
//! needs no mask.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::mount::MountAttrFlags;

use crate::error::{During, Result, Trouble};
use crate::mounts::{detached_copy, detached_filesystem, label_option, move_onto};
use crate::nodes::{Node, Nodes, read_only};
use crate::null_device::require_null;
use crate::paths::{Root, is_folder};
use crate::system::{MountChange, change_mount};

/// The detached mounts that files and directories are masked with.
pub(crate) struct Cover {
    file: Option<Once>,
    folder: Option<Once>,
}

/// A mount that is moved to its first target and copied from there: the kernel does not copy a
/// detached mount.
struct Once {
    tree: OwnedFd,
    placed: Cell<bool>,
}

impl Once {
    fn new(tree: OwnedFd) -> Self {
        Self { tree, placed: Cell::new(false) }
    }

    fn put(&self, place: &OwnedFd) -> std::io::Result<()> {
        if self.placed.replace(true) {
            return move_onto(detached_copy(&self.tree, false)?, place);
        }
        move_onto(&self.tree, place)
    }
}

impl Cover {
    /// Runs as the host's root. If no nodes can be created, an empty file is used instead.
    pub(crate) fn new(nodes: &Nodes, needed: bool) -> Result<Self> {
        if !needed {
            return Ok(Self { file: None, folder: None });
        }
        let file = match nodes.node("null", Node::null()) {
            Ok(null) => {
                require_null(&null)?;
                read_only(null)?
            }
            Err(_) => nodes.empty_file("null")?,
        };
        Ok(Self { file: Some(Once::new(file)), folder: None })
    }

    /// Runs inside, before the host's filesystems are out of reach.
    pub(crate) fn make_own(&mut self, label: &str) -> Result<()> {
        if self.file.is_some() {
            let options = ["size=4k".to_owned(), "nr_inodes=2".to_owned(), "mode=755".to_owned()];
            let options: Vec<String> =
                options.into_iter().chain(label_option("tmpfs", label)).collect();
            let flags = MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            self.folder = Some(Once::new(detached_filesystem("tmpfs", &options, flags)?));
        }
        Ok(())
    }

    /// The raw descriptors it holds.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = RawFd> {
        [self.file.as_ref(), self.folder.as_ref()]
            .into_iter()
            .flatten()
            .map(|one| one.tree.as_raw_fd())
    }

    /// Runs inside, after all mounts.
    pub(crate) fn mask(&self, root: &Root, path: &str) -> Result<()> {
        let Some(place) = find(root, path)? else { return Ok(()) };
        let cover = if is_folder(&place)? { &self.folder } else { &self.file };
        let cover = cover.as_ref().ok_or_else(|| Trouble::other("nothing to mask with"))?;
        cover.put(&place).during(format_args!("masking {path}"))
    }
}

/// Follows links inside the root, but not in kernel filesystems, which have no links that a mask
/// could mean.
fn find(root: &Root, path: &str) -> Result<Option<OwnedFd>> {
    if !path.starts_with('/') {
        return Err(Trouble::bad(format!(
            "{path:?} (masked or read-only) is not an absolute path"
        )));
    }
    let kernel = path.starts_with("/proc/") || path.starts_with("/sys/");
    let found = if kernel { root.find_without_links(path) } else { root.find(path) };
    match found {
        Ok(place) => Ok(Some(place)),
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
pub(crate) fn make_read_only(root: &Root, path: &str) -> Result<()> {
    let Some(place) = find(root, path)? else { return Ok(()) };
    let copy =
        detached_copy(&place, true).during(format_args!("copying {path} to make it read-only"))?;
    let change =
        MountChange { set: libc::MOUNT_ATTR_RDONLY, recursive: true, ..MountChange::default() };
    change_mount(copy.as_fd(), change).during(format_args!("making {path} read-only"))?;
    move_onto(&copy, &place).during(format_args!("making {path} read-only"))
}
