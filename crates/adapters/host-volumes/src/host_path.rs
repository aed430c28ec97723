//! hostPath volumes: checks that a path of the host has the type that the pod expects, and creates
//! it for the types `DirectoryOrCreate` and `FileOrCreate`.
//!
//! Rule: types and error texts are upstream's; symlinks in the path are followed.
//!
//! upstream: pkg/volume/hostpath

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use host_paths::PathError;

use crate::step_error::StepError;

pub(crate) fn set_up(path: &str, kind: &str) -> Result<PathBuf, StepError> {
    if path.split('/').any(|part| part == "..") {
        return Err(StepError::permanent(format!(
            "invalid HostPath `{path}`: must not contain '..'"
        )));
    }
    let host_path = Path::new(path);
    let found = std::fs::metadata(host_path);
    // EACCES does not tell whether the path exists, so nothing is created then.
    let missing = matches!(&found, Err(error) if error.kind() != io::ErrorKind::PermissionDenied);
    match kind {
        "" => return Ok(host_path.to_owned()),
        "DirectoryOrCreate" if missing => return create_dir(host_path),
        "FileOrCreate" if missing => return create_file(host_path),
        _ => {}
    }
    let is = |test: fn(&std::fs::FileType) -> bool| {
        found.as_ref().is_ok_and(|found| test(&found.file_type()))
    };
    let (has_type, expected) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(std::fs::FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (is(std::fs::FileType::is_file), "a file"),
        "Socket" => (is(std::fs::FileType::is_socket), "a socket file"),
        "CharDevice" => (is(std::fs::FileType::is_char_device), "a character device"),
        "BlockDevice" => (is(std::fs::FileType::is_block_device), "a block device"),
        other => return Err(StepError::permanent(format!("{other} is an invalid volume type"))),
    };
    if has_type {
        Ok(host_path.to_owned())
    } else {
        Err(StepError::permanent(format!("hostPath type check failed: {path} is not {expected}")))
    }
}

fn create_dir(path: &Path) -> Result<PathBuf, StepError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(|error| PathError::new("create the directory", path, error))?;
    Ok(path.to_owned())
}

fn create_file(path: &Path) -> Result<PathBuf, StepError> {
    std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o644)
        .open(path)
        .map_err(|error| PathError::new("create the file", path, error))?;
    Ok(path.to_owned())
}
