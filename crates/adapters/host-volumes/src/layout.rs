//! Paths of a pod's volumes (upstream: kubelet_getters.go, volume/util/subpath).
//!
//! Rule: names are checked here, once, before a path is built from them.

use std::path::{Path, PathBuf};

use host_paths::{OpenDir, PathError, check_name};
use ports::pod_host::PayloadVolumeKind;

/// The directory name of upstream's emptyDir plugin.
pub(crate) const EMPTY_DIR_PLUGIN: &str = "kubernetes.io~empty-dir";

/// The directory names of the plugins whose volumes this crate makes.
pub(crate) fn own_plugin_dirs() -> impl Iterator<Item = &'static str> {
    let payloads = PayloadVolumeKind::ALL.into_iter().map(PayloadVolumeKind::plugin_dir);
    std::iter::once(EMPTY_DIR_PLUGIN).chain(payloads)
}

pub(crate) const SUB_PATHS: &str = "volume-subpaths";

/// One pod's directory.
#[derive(Debug, Clone)]
pub(crate) struct PodDirPath {
    pub(crate) path: PathBuf,
}

impl PodDirPath {
    pub(crate) fn new(root: &Path, uid: &str) -> Result<Self, PathError> {
        check_dir_name(uid, root)?;
        Ok(Self { path: root.join("pods").join(uid) })
    }

    /// The pod's directory, created if it is missing.
    pub(crate) fn make(&self) -> Result<OpenDir, PathError> {
        OpenDir::make(&self.path, 0o750)
    }

    /// The pod's directory, `None` if it does not exist.
    pub(crate) fn open(&self) -> Result<Option<OpenDir>, PathError> {
        if_exists(OpenDir::open(&self.path))
    }
}

/// Turns "not found" into `None`.
pub(crate) fn if_exists<T>(found: Result<T, PathError>) -> Result<Option<T>, PathError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(path_error) if path_error.is_missing() => Ok(None),
        Err(path_error) => Err(path_error),
    }
}

pub(crate) fn check_dir_name(name: &str, dir: &Path) -> Result<(), PathError> {
    check_name(name)
        .map_err(|error| PathError::refused("use as a name in", dir, &error.to_string()))
}
