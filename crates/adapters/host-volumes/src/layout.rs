//! Where things of a pod's volumes lie (upstream: kubelet_getters.go, volume/util/subpath).
//!
//! Rule: names are checked here, once, before a path is made of them.

use std::path::{Path, PathBuf};

use host_paths::{Folder, Trouble, check_name};

/// The folder name of upstream's emptyDir plugin.
pub(crate) const EMPTY_DIRECTORY: &str = "kubernetes.io~empty-dir";

pub(crate) const SUB_PATHS: &str = "volume-subpaths";

/// One pod's folder.
#[derive(Debug, Clone)]
pub(crate) struct PodPlace {
    pub(crate) path: PathBuf,
}

impl PodPlace {
    pub(crate) fn new(root: &Path, uid: &str) -> Result<Self, Trouble> {
        named(uid, root)?;
        Ok(Self { path: root.join("pods").join(uid) })
    }

    /// The pod's folder, made where it is missing.
    pub(crate) fn make(&self) -> Result<Folder, Trouble> {
        Folder::make(&self.path, 0o750)
    }

    /// The pod's folder, None where it is not there.
    pub(crate) fn open(&self) -> Result<Option<Folder>, Trouble> {
        present(Folder::open(&self.path))
    }
}

/// None for what is not there.
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
