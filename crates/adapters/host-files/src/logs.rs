//! Log files of containers, and the links by which log shippers find them.
//!
//! Rule: a link whose log is only being rotated stays (upstream: kuberuntime_gc.go), and so does
//! one whose container may still write; only names of logs are touched, and only links to this
//! agent's logs: other agents have links in the same directory. Reads no log.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use host_paths::{OpenDir, PathError, PathErrorExt as _, remove_tree};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::pod_dirs::{HostLayout, MAX_NAMES, check_file_name};

impl HostLayout {
    pub(crate) fn link_log(&self, name: &str, target: &str) -> Result<(), PathError> {
        check_file_name(name, &self.links)?;
        let dir = OpenDir::make(&self.links, 0o755)?;
        let path = dir.path_of(name);
        if rustix::fs::readlinkat(&dir, name, Vec::new())
            .is_ok_and(|there| there.to_bytes() == target.as_bytes())
        {
            return Ok(());
        }
        // A rename replaces the old link, so that one exists at any time.
        let temporary = format!("{}{}", own_temporary_prefix(), name_hash(name));
        match rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(PathError::new("remove", &dir.path_of(&temporary), errno)),
        }
        rustix::fs::symlinkat(target, &dir, &temporary).operation("link", &path)?;
        let placed = rustix::fs::renameat(&dir, &temporary, &dir, name);
        if placed.is_err() {
            let _gone = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
        }
        placed.operation("link", &path)
    }

    pub(crate) fn highest_log_number(&self, path: &str) -> Result<Option<u32>, PathError> {
        let below = self.below_logs(path)?;
        let dir = match OpenDir::open(&self.pod_logs).and_then(|logs| logs.dir(below)) {
            Ok(dir) => dir,
            Err(path_error) if path_error.is_missing() => return Ok(None),
            Err(path_error) => return Err(path_error),
        };
        let names = dir.names(MAX_NAMES)?;
        Ok(names.iter().filter_map(|name| log_number(name)).max())
    }

    pub(crate) fn remove_pod_log(&self, name: &str) -> Result<(), PathError> {
        check_file_name(name, &self.pod_logs)?;
        match OpenDir::open(&self.pod_logs) {
            Ok(logs) => remove_tree(&logs, name),
            Err(path_error) if path_error.is_missing() => Ok(()),
            Err(path_error) => Err(path_error),
        }
    }

    pub(crate) fn remove_container_log(&self, path: &str) -> Result<(), PathError> {
        let below = self.below_logs(path)?;
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(PathError::refused("remove the log", Path::new(path), "not a file's path"));
        };
        let dir = match OpenDir::open(&self.pod_logs).and_then(|logs| logs.dir(parent)) {
            Ok(dir) => dir,
            Err(path_error) if path_error.is_missing() => return Ok(()),
            Err(path_error) => return Err(path_error),
        };
        for found in dir.names(MAX_NAMES)? {
            if found == name || is_rotated(&found, name) {
                match rustix::fs::unlinkat(&dir, &*found, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => {
                        return Err(PathError::new("remove the log", &dir.path_of(found), errno));
                    }
                }
            }
        }
        Ok(())
    }

    /// Links to the logs in `keep` stay, whether or not the log exists.
    pub(crate) fn remove_dead_links(&self, keep: &BTreeSet<String>) -> Result<(), PathError> {
        let dir = match OpenDir::open(&self.links) {
            Ok(dir) => dir,
            Err(path_error) if path_error.is_missing() => return Ok(()),
            Err(path_error) => return Err(path_error),
        };
        for name in dir.names(MAX_NAMES)? {
            let Ok(target) = rustix::fs::readlinkat(&dir, &*name, Vec::new()) else { continue };
            let target = target.to_string_lossy().into_owned();
            // A link to another agent's logs.
            if self.below_logs(&target).is_err() {
                continue;
            }
            if Path::new(&name).extension() != Some(OsStr::new("log")) {
                // Left by an agent that was killed while it created a link; this process's own may
                // be in use.
                let text = name.to_string_lossy();
                if text.starts_with(TEMPORARY_PREFIX) && !text.starts_with(&own_temporary_prefix())
                {
                    let _left = rustix::fs::unlinkat(&dir, &*name, AtFlags::empty());
                }
                continue;
            }
            if !keep.contains(&target) && is_dangling(&dir.path_of(target)) {
                match rustix::fs::unlinkat(&dir, &*name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => {
                        return Err(PathError::new("remove the link", &dir.path_of(name), errno));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Prefix of links that are being created, and of those of this process.
const TEMPORARY_PREFIX: &str = ".linking-";
fn own_temporary_prefix() -> String {
    format!("{TEMPORARY_PREFIX}{}-", std::process::id())
}

/// Whether a log is gone for good: during a rotation it has only its rotated name for a short time.
fn is_dangling(target: &Path) -> bool {
    let gone = std::fs::symlink_metadata(target)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    if !gone {
        return false;
    }
    let (Some(parent), Some(log)) = (target.parent(), target.file_name()) else { return true };
    let names = OpenDir::open(parent).and_then(|dir| dir.names(MAX_NAMES));
    !names.is_ok_and(|names| names.iter().any(|name| is_rotated(name, log)))
}

/// Whether a name is a rotated log: `0.log.20260101-101010`, `….gz`, `….tmp`.
fn is_rotated(name: &OsStr, log: &OsStr) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    name.as_bytes()
        .strip_prefix(log.as_bytes())
        .is_some_and(|rest| rest.len() > 1 && rest.starts_with(b"."))
}

/// The restart count in a log's name: `3.log`, `3.log.20260101-101010`.
fn log_number(name: &OsStr) -> Option<u32> {
    let (number, rest) = name.to_str()?.split_once(".log")?;
    if !(rest.is_empty() || rest.starts_with('.')) || number.starts_with('+') {
        return None;
    }
    number.parse().ok()
}

/// Two links created at once need two temporary names.
fn name_hash(name: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
