//! Log files of containers, and the links by which log shippers find them.
//!
//! Rule: a link whose log is only being rotated stays (upstream: kuberuntime_gc.go), and so does
//! one whose container may still write; only names of logs are touched, and only links to this
//! agent's logs: other agents have links in the same directory. Reads no log.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use host_paths::{Doing as _, Folder, Trouble, remove_tree};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::folders::{MOST_NAMES, Places, named};

impl Places {
    pub(crate) fn link_log(&self, name: &str, target: &str) -> Result<(), Trouble> {
        named(name, &self.links)?;
        let folder = Folder::make(&self.links, 0o755)?;
        let path = folder.path_of(name);
        if rustix::fs::readlinkat(&folder, name, Vec::new())
            .is_ok_and(|there| there.to_bytes() == target.as_bytes())
        {
            return Ok(());
        }
        // A rename replaces the old link, so that one exists at any time.
        let temporary = format!("{}{}", own_temporary(), name_hash(name));
        match rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Trouble::new("remove", &folder.path_of(&temporary), errno)),
        }
        rustix::fs::symlinkat(target, &folder, &temporary).doing("link", &path)?;
        let placed = rustix::fs::renameat(&folder, &temporary, &folder, name);
        if placed.is_err() {
            let _gone = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        }
        placed.doing("link", &path)
    }

    pub(crate) fn highest_log_number(&self, path: &str) -> Result<Option<u32>, Trouble> {
        let below = self.below_logs(path)?;
        let folder = match Folder::open(&self.pod_logs).and_then(|logs| logs.folder(below)) {
            Ok(folder) => folder,
            Err(trouble) if trouble.is_missing() => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        let names = folder.names(MOST_NAMES)?;
        Ok(names.iter().filter_map(|name| log_number(name)).max())
    }

    pub(crate) fn remove_pod_log(&self, name: &str) -> Result<(), Trouble> {
        named(name, &self.pod_logs)?;
        match Folder::open(&self.pod_logs) {
            Ok(logs) => remove_tree(&logs, name),
            Err(trouble) if trouble.is_missing() => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    pub(crate) fn remove_container_log(&self, path: &str) -> Result<(), Trouble> {
        let below = self.below_logs(path)?;
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(Trouble::refused("remove the log", Path::new(path), "not a file's path"));
        };
        let folder = match Folder::open(&self.pod_logs).and_then(|logs| logs.folder(parent)) {
            Ok(folder) => folder,
            Err(trouble) if trouble.is_missing() => return Ok(()),
            Err(trouble) => return Err(trouble),
        };
        for found in folder.names(MOST_NAMES)? {
            if found == name || is_rotated(&found, name) {
                match rustix::fs::unlinkat(&folder, &*found, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => {
                        return Err(Trouble::new("remove the log", &folder.path_of(found), errno));
                    }
                }
            }
        }
        Ok(())
    }

    /// Links to the logs in `keep` stay, whether or not the log exists.
    pub(crate) fn remove_dead_links(&self, keep: &BTreeSet<String>) -> Result<(), Trouble> {
        let folder = match Folder::open(&self.links) {
            Ok(folder) => folder,
            Err(trouble) if trouble.is_missing() => return Ok(()),
            Err(trouble) => return Err(trouble),
        };
        for name in folder.names(MOST_NAMES)? {
            let Ok(target) = rustix::fs::readlinkat(&folder, &*name, Vec::new()) else { continue };
            let target = target.to_string_lossy().into_owned();
            // A link to another agent's logs.
            if self.below_logs(&target).is_err() {
                continue;
            }
            if Path::new(&name).extension() != Some(OsStr::new("log")) {
                // Left by an agent that was killed while it created a link; this process's own may
                // be in use.
                let text = name.to_string_lossy();
                if text.starts_with(TEMPORARY) && !text.starts_with(&own_temporary()) {
                    let _left = rustix::fs::unlinkat(&folder, &*name, AtFlags::empty());
                }
                continue;
            }
            if !keep.contains(&target) && is_dead(&folder.path_of(target)) {
                match rustix::fs::unlinkat(&folder, &*name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => {
                        return Err(Trouble::new("remove the link", &folder.path_of(name), errno));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Prefix of links that are being created, and of those of this process.
const TEMPORARY: &str = ".linking-";
fn own_temporary() -> String {
    format!("{TEMPORARY}{}-", std::process::id())
}

/// Whether a log is gone for good: during a rotation it has only its rotated name for a short time.
fn is_dead(target: &Path) -> bool {
    let gone = std::fs::symlink_metadata(target)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    if !gone {
        return false;
    }
    let (Some(parent), Some(log)) = (target.parent(), target.file_name()) else { return true };
    let names = Folder::open(parent).and_then(|folder| folder.names(MOST_NAMES));
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
