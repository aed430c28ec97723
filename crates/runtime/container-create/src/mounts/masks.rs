//! Paths that a container sees as empty, or may only read.
//!
//! Rule: what covers a path is the machine's own `/dev/null` (checked to be that device) or an empty
//! read-only folder, never something that the image brought. A path that is not there needs no mask.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::MountAttrFlags;

use crate::error::{During, Result, Trouble};
use crate::mounts::{detached_copy, detached_filesystem, label_option, move_onto};
use crate::paths::{Root, is_folder};
use crate::system::{MountChange, change_mount};

/// The machine's `/dev/null`, detached.
pub(crate) struct Cover {
    null: Once,
    folder: Option<Once>,
}

/// A mount that is moved to its first place and copied from there: the kernel copies no mount that
/// is nowhere.
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
    /// Runs as the machine's root, in its mount namespace.
    pub(crate) fn open() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let null =
            rustix::fs::open("/dev/null", flags, Mode::empty()).during("opening /dev/null")?;
        require_null(&null)?;
        let null = detached_copy(&null, false).during("copying the mount of /dev/null")?;
        Ok(Self { null: Once::new(null), folder: None })
    }

    /// Runs inside, before the machine's filesystems are gone.
    pub(crate) fn make_own(&mut self, needed: bool, label: &str) -> Result<()> {
        if needed {
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

    /// The descriptors that it holds.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = RawFd> {
        [Some(&self.null), self.folder.as_ref()]
            .into_iter()
            .flatten()
            .map(|one| one.tree.as_raw_fd())
    }

    /// Runs inside, after all mounts.
    pub(crate) fn mask(&self, root: &Root, path: &str) -> Result<()> {
        let Some(place) = find(root, path)? else { return Ok(()) };
        let cover = match (is_folder(&place)?, &self.folder) {
            (false, _) => {
                require_null(&self.null.tree)?;
                &self.null
            }
            (true, Some(folder)) => folder,
            (true, None) => return Err(Trouble::other("no folder to mask with")),
        };
        cover.put(&place).during(format_args!("masking {path}"))
    }
}

fn require_null(descriptor: &OwnedFd) -> Result<()> {
    let stat = rustix::fs::fstat(descriptor).during("looking at /dev/null")?;
    let numbers = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || numbers != (1, 3) {
        return Err(Trouble::other("/dev/null is not the null device (character device 1:3)"));
    }
    Ok(())
}

/// Links are followed inside the root, but not in the kernel's own trees, where there are none that
/// a mask could mean.
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
