//! Mounts made from descriptors and unmounted without following symlinks.
//!
//! Rule: source and target are open descriptors, so that no name can be swapped between a check and
//! the mount. An unmount names its target in a directory that is held open.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;
use std::time::Duration;

use host_paths::{OpenDir, PathError, PathErrorExt as _};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

/// Mounts that may be stacked at one mount point.
const MAX_LAYERS: usize = 64;

/// A mount that is busy for longer than all pauses together (about half a second) is really in use.
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// Parameters of a new file system.
pub(crate) struct NewFileSystem<'a> {
    pub(crate) kind: &'a str,
    pub(crate) source: &'a str,
    pub(crate) options: &'a [(&'a str, String)],
    /// A mount option that is left out if this kernel does not know it.
    pub(crate) optional_flag: Option<&'a str>,
}

/// Creates a file system and mounts it on a directory.
pub(crate) fn mount_new(new: &NewFileSystem<'_>, target: &OpenDir) -> Result<(), PathError> {
    let path = target.path();
    let context = rustix::mount::fsopen(new.kind, FsOpenFlags::FSOPEN_CLOEXEC)
        .operation("mount a new file system on", path)?;
    rustix::mount::fsconfig_set_string(&context, "source", new.source)
        .operation("name the source of what is mounted on", path)?;
    for (key, value) in new.options {
        rustix::mount::fsconfig_set_string(&context, *key, value.as_str())
            .operation("set an option of what is mounted on", path)?;
    }
    if let Some(flag) = new.optional_flag {
        match rustix::mount::fsconfig_set_flag(&context, flag) {
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(errno) => return Err(PathError::new("set an option of", path, errno)),
        }
    }
    rustix::mount::fsconfig_create(&context).operation("make the file system for", path)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RELATIME;
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .operation("mount on", path)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(&mount, "", target, "", flags).operation("mount on", path)
}

/// Bind-mounts the file or directory of a descriptor to a name in a directory.
pub(crate) fn bind(source: impl AsFd, dir: &OpenDir, name: &str) -> Result<(), PathError> {
    let path = dir.path_of(name);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree =
        rustix::mount::open_tree(source, "", flags).operation("take what is bound to", &path)?;
    // Without MOVE_MOUNT_T_SYMLINKS a symlink in the target's place is not followed.
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&tree, "", dir, name, flags).operation("bind to", &path)
}

/// Unmounts everything that is mounted at a name in a directory. No mount there is no error.
pub(crate) fn unmount(dir: &OpenDir, name: &Path) -> Result<(), PathError> {
    let target = Path::new("/proc/self/fd").join(dir.as_fd().as_raw_fd().to_string()).join(name);
    let mut layers = MAX_LAYERS;
    let mut pause = Duration::from_millis(1);
    loop {
        match rustix::mount::unmount(&target, UnmountFlags::NOFOLLOW) {
            Ok(()) if layers > 0 => layers -= 1,
            // Other processes look at new mounts (systemd, monitors) and keep them busy briefly.
            Err(Errno::BUSY) if pause < MAX_PAUSE => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Ok(()) => return Err(PathError::new("unmount", &dir.path_of(name), Errno::BUSY)),
            Err(errno) => return Err(PathError::new("unmount", &dir.path_of(name), errno)),
        }
    }
}

/// Unmounts a mount point given by its whole path, reached from a directory without following a
/// symlink.
pub(crate) fn unmount_below(dir: &OpenDir, point: &Path) -> Result<(), PathError> {
    let real = std::fs::canonicalize(dir.path()).operation("resolve", dir.path())?;
    let (Ok(below), Some(name)) = (point.strip_prefix(&real), point.file_name()) else {
        return Err(PathError::refused("unmount", point, "not below the pod's directory"));
    };
    let parent = dir.dir(below.parent().unwrap_or(Path::new("")))?;
    unmount(&parent, Path::new(name))
}

/// The kind of file system that a directory is on.
pub(crate) fn file_system(dir: &OpenDir) -> Result<rustix::fs::StatFs, PathError> {
    rustix::fs::fstatfs(dir).operation("look at the file system of", dir.path())
}

/// Whether `/proc/self/fd` can be used at all.
pub(crate) fn check_proc() -> Result<(), PathError> {
    let path = Path::new("/proc/self/fd");
    rustix::fs::statat(CWD, path, rustix::fs::AtFlags::empty()).map(drop).operation("use", path)
}
