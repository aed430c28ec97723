//! Paths of a pod's volumes (upstream: kubelet_getters.go, volume/util/subpath).
//!
//! Rule: names are checked here, once, before a path is built from them.

use std::path::{Path, PathBuf};

use host_paths::{Folder, Trouble, check_name};

/// The directory name of upstream's emptyDir plugin.
pub(crate) const EMPTY_DIRECTORY: &str = "kubernetes.io~empty-dir";

pub(crate) const SUB_PATHS: &str = "volume-subpaths";

/// One pod's directory.
#[derive(Debug, Clone)]
pub(crate) struct PodPlace {
    pub(crate) path: PathBuf,
}

impl PodPlace {
    pub(crate) fn new(root: &Path, uid: &str) -> Result<Self, Trouble> {
        named(uid, root)?;
        Ok(Self { path: root.join("pods").join(uid) })
    }

    /// The pod's directory, created if it is missing.
    pub(crate) fn make(&self) -> Result<Folder, Trouble> {
        Folder::make(&self.path, 0o750)
    }

    /// The pod's directory, `None` if it does not exist.
    pub(crate) fn open(&self) -> Result<Option<Folder>, Trouble> {
        present(Folder::open(&self.path))
    }
}

/// Turns "not found" into `None`.
pub(crate) fn present<T>(found: Result<T, Trouble>) -> Result<Option<T>, Trouble> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(trouble) if trouble.is_missing() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

pub(crate) fn named(name: &str, folder: &Path) -> Result<(), Trouble> {
    check_name(name).map_err(|why| Trouble::refused("use as a name in", folder, &why))
}
