//! The root directory as a mount that is shared with others: what a container with bidirectional
//! propagation mounts below it reaches the host, and the other way round.
//!
//! Rule: a directory whose mount is shared already is left as it is; otherwise it is bound onto
//! itself and made shared, with all below. Where that cannot be done pods run all the same.
//!
//! upstream: pkg/volume/util/hostutil/hostutil_linux.go (DoMakeRShared)

use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {cause}")]
pub struct SharedMountError {
    doing: &'static str,
    path: PathBuf,
    cause: io::Error,
}

/// Makes the mount of a directory shared; whether that had to be done.
pub fn make_shared(directory: &Path) -> Result<bool, SharedMountError> {
    let failed = |doing, path: &Path, cause: io::Error| SharedMountError {
        doing,
        path: path.to_owned(),
        cause,
    };
    let table = Path::new("/proc/self/mountinfo");
    let mounts = std::fs::read_to_string(table).map_err(|cause| failed("read", table, cause))?;
    let place = directory.canonicalize().map_err(|cause| failed("find", directory, cause))?;
    if is_shared(&mounts, &place) {
        return Ok(false);
    }
    mount_bind_recursive(&place, &place)
        .map_err(|errno| failed("bind onto itself", &place, errno.into()))?;
    let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change(&place, flags).map_err(|errno| failed("share", &place, errno.into()))?;
    Ok(true)
}

/// Whether the mount that holds a path is shared, as the kernel's table says: the longest mount
/// point above it, and of several at the same point the last.
fn is_shared(table: &str, place: &Path) -> bool {
    let mut best: Option<(usize, bool)> = None;
    for line in table.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let Some(point) = fields.get(4).map(|point| unescaped(point)) else { continue };
        if !place.starts_with(&point) {
            continue;
        }
        let optional = fields.iter().skip(6).take_while(|field| **field != "-");
        let shared = optional.into_iter().any(|field| field.starts_with("shared:"));
        let length = point.components().count();
        if best.is_none_or(|(longest, _)| length >= longest) {
            best = Some((length, shared));
        }
    }
    best.is_some_and(|(_, shared)| shared)
}

/// The table writes spaces and the like as three octal digits.
fn unescaped(point: &str) -> PathBuf {
    let mut text = point.to_owned();
    for (code, sign) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(code, sign);
    }
    PathBuf::from(text)
}
