//! Sets one SELinux label on everything at and beneath a path.
//!
//! Rule: the tree is walked by descriptors and no link is followed, so a concurrent move leads
//! nowhere else. Files that cannot carry a label, or are read-only, are skipped: the policy applies
//! to them as they are. System directories of the host are refused. Does not choose labels.
//!
//! upstream: go-selinux selinux_linux.go (chcon, rchcon)

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fstat, openat, openat2,
};
use rustix::io::Errno;

use crate::failure::{CallContext as _, CriError, Result};

#[cfg(test)]
mod tests;

const ATTRIBUTE: &str = "security.selinux";
/// The upper limit of a label's length.
const MAX_LENGTH: usize = 4096;
/// The upper limit of nesting: each level holds a descriptor while it is walked.
const MAX_DEPTH: usize = 200;
/// The upper limit of files in a volume.
const MAX_COUNT: u64 = 1 << 24;

/// A label on one of these would lock out the host's own programs.
const PROTECTED_DIRS: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/passwd",
    "/etc/pki",
    "/etc/shadow",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
    "/var/lib",
    "/var/log",
];

type SetLabel<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> rustix::io::Result<()>;

/// `path` is absolute, its links resolved.
pub(super) fn relabel(path: &Path, label: &str) -> Result<()> {
    walk(path, &mut |file| set_label(file, label))
}

fn walk(path: &Path, write: SetLabel<'_>) -> Result<()> {
    if PROTECTED_DIRS.iter().any(|own| Path::new(own) == path) {
        return Err(CriError::plain(format!(
            "SELinux relabeling of {} is not allowed: the machine itself lives there",
            path.display()
        )));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .doing(format!("opening {}", path.display()))?;
    let mut open: Vec<Dir> = Vec::new();
    let mut seen = 0_u64;
    open.extend(label_one(&top, write).doing(format!("labelling {}", path.display()))?);
    while let Some(dir) = open.last_mut() {
        let Some(entry) = dir.read() else {
            open.pop();
            continue;
        };
        let entry = entry.doing(format!("reading a directory in {}", path.display()))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        seen += 1;
        if seen > MAX_COUNT || open.len() > MAX_DEPTH {
            return Err(CriError::plain(format!(
                "{} has more than {MAX_COUNT} files or {MAX_DEPTH} folders in each other",
                path.display()
            )));
        }
        let shown = || {
            let name = std::ffi::OsStr::from_bytes(name.to_bytes());
            format!("labelling {} in {}", name.display(), path.display())
        };
        let holder = open.last().map(Dir::fd).transpose().doing(shown())?;
        let file = match holder.map(|holder| openat(holder, name, flags, Mode::empty())) {
            Some(Ok(file)) => file,
            // Removed since the directory was read.
            Some(Err(Errno::NOENT)) | None => continue,
            Some(Err(error)) => return Err(error).doing(shown()),
        };
        let inner = label_one(&file, write).doing(shown())?;
        open.extend(inner);
    }
    Ok(())
}

/// Labels a file; returns the directory stream if it is a directory.
fn label_one(file: &OwnedFd, write: SetLabel<'_>) -> rustix::io::Result<Option<Dir>> {
    match write(std::os::fd::AsFd::as_fd(file)) {
        Ok(()) | Err(Errno::NOTSUP | Errno::ROFS) => {}
        Err(error) => return Err(error),
    }
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::Directory {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(file, ".", flags, Mode::empty()).and_then(Dir::new).map(Some)
}

/// Through `/proc/self/fd`, since the kernel takes no attribute through an O_PATH descriptor. If
/// the descriptor is a link, the link's own label is set.
fn set_label(file: BorrowedFd<'_>, label: &str) -> rustix::io::Result<()> {
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut have = [0; MAX_LENGTH];
    // Most files of a volume that was used before have it, and reading is cheaper than writing.
    if let Ok(length) = rustix::fs::getxattr(&place, ATTRIBUTE, &mut have[..]) {
        let have = have.get(..length).unwrap_or_default();
        if have.strip_suffix(&[0]).unwrap_or(have) == label.as_bytes() {
            return Ok(());
        }
    }
    rustix::fs::setxattr(&place, ATTRIBUTE, label.as_bytes(), XattrFlags::empty())
}
