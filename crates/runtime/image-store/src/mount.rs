//! Mounts and unmounts the overlay of a view.
//!
//! The kernel reads at most a page of options from mount(2), which sixty layers fill. Where
//! supported (Linux 6.7), layers are added one by one with fsconfig(2); otherwise, and for paths
//! too long for fsconfig, they are named by short paths of open descriptors. An older kernel may
//! fail at any step: 6.5 rejects the option, older ones accept every option as text and reject them
//! all when the superblock is created. Needs CAP_SYS_ADMIN; the caller chooses the mount namespace.
//! May block on a hanging disk: run it where that is allowed.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount, mount_change, move_mount, open_tree,
};

use crate::error::{Error, PathContext as _, Result};
use crate::view::OverlayOptions;

/// What mount(2) reads, including the final zero byte.
const PAGE: usize = 4096;
/// What fsconfig(2) reads as one string.
const MAX_TEXT_LENGTH: usize = 255;

/// A failed step of the new mount API, with its error.
type FailedStep = (&'static str, Errno);

/// Mounts at `target`, an existing directory.
pub fn mount_overlay(options: &OverlayOptions, target: &Path) -> Result<()> {
    match by_parts(options).map_err(|(step, error)| failed(target, step, error))? {
        Some(made) => move_mount(&made, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| failed(target, "move_mount", error)),
        None => mount_by_descriptors(options, target),
    }
}

/// The overlay as a detached mount that ends with its descriptor; no mount table shows it.
pub fn detached_overlay(options: &OverlayOptions) -> Result<OwnedFd> {
    let shown = options.lower.first().cloned().unwrap_or_default();
    match by_parts(options).map_err(|(step, error)| failed(&shown, step, error))? {
        Some(made) => Ok(made),
        None => detached_by_descriptors(options),
    }
}

fn failed(target: &Path, step: &'static str, cause: Errno) -> Error {
    Error::Mount { target: target.to_owned(), step, cause: cause.into() }
}

fn fits_new_interface(options: &OverlayOptions) -> bool {
    // Kernels differ in whether a backslash is an escape here.
    let short = |path: &PathBuf| {
        let bytes = path.as_os_str().as_bytes();
        bytes.len() <= MAX_TEXT_LENGTH && !bytes.contains(&b'\\')
    };
    options.lower.iter().all(short)
        && options.upper.as_ref().is_none_or(|upper| short(&upper.changes) && short(&upper.work))
}

/// With the new mount API; none if the kernel or the length of a path requires mount(2).
fn by_parts(options: &OverlayOptions) -> std::result::Result<Option<OwnedFd>, FailedStep> {
    if !fits_new_interface(options) {
        return Ok(None);
    }
    match create_by_parts(options) {
        Ok(made) => Ok(Some(made)),
        Err(step) if is_of_an_older_kernel(step) => Ok(None),
        Err(step) => Err(step),
    }
}

/// Errors of older kernels without the new mount API. Truly invalid options are rejected by
/// mount(2) as well.
pub(crate) fn is_of_an_older_kernel(step: FailedStep) -> bool {
    matches!(step, ("fsopen", Errno::NOSYS) | (_, Errno::INVAL))
}

fn create_by_parts(options: &OverlayOptions) -> std::result::Result<OwnedFd, FailedStep> {
    let at = |step| move |error| (step, error);
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(at("fsopen"))?;
    fsconfig_set_string(&context, "source", "overlay").map_err(at("source"))?;
    for lower in &options.lower {
        fsconfig_set_string(&context, "lowerdir+", lower).map_err(at("lowerdir+"))?;
    }
    if let Some(upper) = &options.upper {
        fsconfig_set_string(&context, "upperdir", &upper.changes).map_err(at("upperdir"))?;
        fsconfig_set_string(&context, "workdir", &upper.work).map_err(at("workdir"))?;
    }
    if options.user_attributes {
        fsconfig_set_flag(&context, "userxattr").map_err(at("userxattr"))?;
    }
    if !options.label.is_empty() {
        fsconfig_set_string(&context, "context", &options.label).map_err(at("context"))?;
    }
    fsconfig_create(&context).map_err(at("fsconfig"))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map_err(at("fsmount"))
}

/// With mount(2), which needs a mount point: a thread uses one in a mount namespace of its own,
/// which ends with the thread. A kill leaves nothing behind.
pub(crate) fn detached_by_descriptors(options: &OverlayOptions) -> Result<OwnedFd> {
    // Any directory will do as mount point; the layers are open by then.
    let Some(place) = options.lower.first() else {
        return Err(failed(Path::new(""), "no layers", Errno::INVAL));
    };
    let work = || {
        private_mount_namespace().map_err(|error| failed(place, "a mount namespace", error))?;
        mount_by_descriptors(options, place)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(CWD, place, flags).map_err(|error| failed(place, "open_tree", error))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("overlay".to_owned());
        let thread = thread.spawn_scoped(scope, work).doing("a thread to mount", place)?;
        thread.join().unwrap_or_else(|_| Err(failed(place, "the thread panicked", Errno::CANCELED)))
    })
}

/// Gives this thread a private mount namespace.
fn private_mount_namespace() -> std::result::Result<(), Errno> {
    // Deprecated in favour of an unsafe version because of its effect on descriptors; for mounts
    // alone it has none.
    #[expect(deprecated, reason = "the safe form suffices for a mount namespace")]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// With mount(2): by path if the options fit, otherwise by open descriptors.
pub(crate) fn mount_by_descriptors(options: &OverlayOptions, target: &Path) -> Result<()> {
    let mut data = options.data();
    let mut held: Vec<OwnedFd> = Vec::new();
    if data.len() >= PAGE {
        let mut short = Vec::new();
        for lower in &options.lower {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = open(lower, flags, Mode::empty()).doing("opening", lower)?;
            short.push(PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())));
            held.push(dir);
        }
        data = options.data_with(&short);
    }
    if data.len() >= PAGE {
        return Err(failed(target, "options exceed a page", Errno::TOOBIG));
    }
    let nul = |_| failed(target, "a path has a NUL byte", Errno::INVAL);
    let data = CString::new(data).map_err(nul)?;
    let mounted = mount("overlay", target, "overlay", MountFlags::empty(), data.as_c_str());
    drop(held);
    mounted.map_err(|error| failed(target, "mount", error))
}

/// Unmounts `target` lazily; nothing mounted there is no error. A mount in use disappears from here
/// at once and ends with its last user.
pub fn unmount(target: &Path) -> Result<()> {
    // Unmounting needs a resolved path; the last component is not followed if it is a symlink.
    match rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => Err(error).doing("unmounting", target),
    }
}
