//! Makes the mount of the root directory shared: a mount that a container with bidirectional
//! propagation makes below it reaches the host, and the other way round.
//!
//! Rule: a directory whose mount is shared already is left as it is; otherwise it is bind-mounted
//! onto itself and made recursively shared. If that fails pods run all the same.
//!
//! upstream: pkg/volume/util/hostutil/hostutil_linux.go (DoMakeRShared)

use std::io;
use std::path::{Path, PathBuf};

use mount_table::{MountTable, PropagationType};
use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};

#[cfg(test)]
mod tests;

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}: {cause}")]
pub struct SharedMountError {
    operation: &'static str,
    path: PathBuf,
    cause: io::Error,
}

/// Makes the mount of a directory shared; returns whether that had to be done.
pub fn make_shared(directory: &Path) -> Result<bool, SharedMountError> {
    let failed = |operation, path: &Path, cause: io::Error| SharedMountError {
        operation,
        path: path.to_owned(),
        cause,
    };
    let table = Path::new(mount_table::PATH);
    let mounts = MountTable::read().map_err(|cause| failed("read", table, cause))?;
    let mount_path = directory.canonicalize().map_err(|cause| failed("find", directory, cause))?;
    if is_shared(&mounts, &mount_path) {
        return Ok(false);
    }
    mount_bind_recursive(&mount_path, &mount_path)
        .map_err(|errno| failed("bind onto itself", &mount_path, errno.into()))?;
    let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change(&mount_path, flags).map_err(|errno| failed("share", &mount_path, errno.into()))?;
    Ok(true)
}

/// Whether the mount that holds a path is shared.
fn is_shared(table: &MountTable, mount_path: &Path) -> bool {
    table
        .containing_mount(mount_path)
        .is_some_and(|mount| mount.propagation_type == PropagationType::Shared)
}
