//! Gives everything at and beneath a path one SELinux label.
//!
//! Rule: the tree is walked by descriptors and no link is followed, so what is moved about meanwhile
//! leads nowhere else. What cannot carry a label, or is read-only, is left as it is: the policy judges
//! it. Folders that the machine itself lives in are refused. Does not choose labels.
//!
//! upstream: go-selinux selinux_linux.go (chcon, rchcon)

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fstat, openat, openat2,
};
use rustix::io::Errno;

use crate::failure::{Doing as _, Failure, Result};

#[cfg(test)]
mod tests;

const ATTRIBUTE: &str = "security.selinux";
/// Longer ones are not a policy's.
const LONGEST: usize = 4096;
/// Each level holds a descriptor while it is walked.
const DEEPEST: usize = 200;
/// More than any volume has whose files are looked at one by one.
const MOST: u64 = 1 << 24;

/// A label on one of these would lock the machine's own programs out.
const OF_THE_MACHINE: &[&str] = &[
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

type Write<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> rustix::io::Result<()>;

/// `path` is absolute, its links resolved.
pub(super) fn relabel(path: &Path, label: &str) -> Result<()> {
    walk(path, &mut |file| set_label(file, label))
}

fn walk(path: &Path, write: Write<'_>) -> Result<()> {
    if OF_THE_MACHINE.iter().any(|own| Path::new(own) == path) {
        return Err(Failure::plain(format!(
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
    while let Some(folder) = open.last_mut() {
        let Some(entry) = folder.read() else {
            open.pop();
            continue;
        };
        let entry = entry.doing(format!("reading a folder in {}", path.display()))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        seen += 1;
        if seen > MOST || open.len() > DEEPEST {
            return Err(Failure::plain(format!(
                "{} has more than {MOST} files or {DEEPEST} folders in each other",
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
            // Gone since it was read.
            Some(Err(Errno::NOENT)) | None => continue,
            Some(Err(error)) => return Err(error).doing(shown()),
        };
        let inner = label_one(&file, write).doing(shown())?;
        open.extend(inner);
    }
    Ok(())
}

/// Labels a file; of a folder, what to read it by.
fn label_one(file: &OwnedFd, write: Write<'_>) -> rustix::io::Result<Option<Dir>> {
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

/// By a name that leads to what is open, since the kernel takes no attribute through a descriptor
/// that is for paths only. A link's own label is set, for such a name is not followed further.
fn set_label(file: BorrowedFd<'_>, label: &str) -> rustix::io::Result<()> {
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut have = [0; LONGEST];
    // Most files of a volume that was in use before have it, and reading is cheaper than writing.
    if let Ok(length) = rustix::fs::getxattr(&place, ATTRIBUTE, &mut have[..]) {
        let have = have.get(..length).unwrap_or_default();
        if have.strip_suffix(&[0]).unwrap_or(have) == label.as_bytes() {
            return Ok(());
        }
    }
    rustix::fs::setxattr(&place, ATTRIBUTE, label.as_bytes(), XattrFlags::empty())
}
