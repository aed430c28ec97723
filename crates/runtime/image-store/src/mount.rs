//! Mounts and unmounts the overlay of a view.
//!
//! The kernel reads at most a page of options from mount(2), which sixty layers fill. Where it can
//! (Linux 6.7), layers are added one by one through the newer interface; elsewhere, and for paths
//! that interface finds too long, they are named by their open descriptors, which is short. Needs
//! the right to mount; the caller chooses the mount namespace. May hang with its disk: run it where
//! that is allowed.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, move_mount,
};

use crate::error::{Doing as _, Error, Result};
use crate::view::OverlayOptions;

/// What mount(2) takes, with its final zero byte.
const PAGE: usize = 4096;
/// What fsconfig(2) takes as one text.
const LONGEST_TEXT: usize = 255;

/// Mounts at `target`, an existing folder.
pub fn mount_overlay(options: &OverlayOptions, target: &Path) -> Result<()> {
    if fits_new_interface(options) {
        match mount_by_parts(options, target) {
            Ok(()) => return Ok(()),
            // An older kernel: it lacks the call or the option.
            Err(("fsopen", Errno::NOSYS) | ("lowerdir+", Errno::INVAL)) => {}
            Err((step, error)) => return Err(failed(target, step, error)),
        }
    }
    mount_by_descriptors(options, target)
}

fn failed(target: &Path, step: &'static str, cause: Errno) -> Error {
    Error::Mount { target: target.to_owned(), step, cause: cause.into() }
}

fn fits_new_interface(options: &OverlayOptions) -> bool {
    // Kernels differ in whether they take a backslash there for an escape.
    let short = |path: &PathBuf| {
        let bytes = path.as_os_str().as_bytes();
        bytes.len() <= LONGEST_TEXT && !bytes.contains(&b'\\')
    };
    options.lower.iter().all(short)
        && options.upper.as_ref().is_none_or(|upper| short(&upper.changes) && short(&upper.work))
}

fn mount_by_parts(
    options: &OverlayOptions,
    target: &Path,
) -> std::result::Result<(), (&'static str, Errno)> {
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
    fsconfig_create(&context).map_err(at("fsconfig"))?;
    let made = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    let made = made.map_err(at("fsmount"))?;
    move_mount(&made, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(at("move_mount"))
}

/// With mount(2): plainly where the options fit, otherwise through open descriptors.
pub(crate) fn mount_by_descriptors(options: &OverlayOptions, target: &Path) -> Result<()> {
    let mut data = options.data();
    let mut held: Vec<OwnedFd> = Vec::new();
    if data.len() >= PAGE {
        let mut short = Vec::new();
        for lower in &options.lower {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = open(lower, flags, Mode::empty()).doing("opening", lower)?;
            short.push(PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())));
            held.push(folder);
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

/// Unmounts what is mounted at `target`; nothing mounted there is fine. A mount that is still in
/// use disappears from here at once and ends with its last user.
pub fn unmount(target: &Path) -> Result<()> {
    // Unmounting needs a resolved path; the last part is not followed if it is a link.
    match rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => Err(error).doing("unmounting", target),
    }
}
