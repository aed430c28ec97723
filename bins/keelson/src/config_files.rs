//! Reads the files that `--config`, `--config-dir` and `--image-credential-provider-config` name.
//!
//! Rule: bytes only; node-config interprets them. A file is read up to its limit and no further, so
//! that a device or an endless file cannot fill the memory. The walk of the drop-in directory is
//! upstream's (filepath.WalkDir): subdirectories are entered, links to directories are not
//! followed.

use node_config::assemble::{ConfigFiles, SourceFile, drop_in_order};
use node_config::credential_provider::file_order;
use node_config::document::MAX_BYTES;
use node_config::flags::FlagSettings;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

mod provider_programs;

pub(crate) use provider_programs::missing as missing_provider_programs;

const PROVIDERS_FLAG: &str = "--image-credential-provider-config";

/// Maximum depth below the drop-in directory.
const MAX_DEPTH: usize = 32;
/// Maximum number of files in a directory.
const MAX_FILES: usize = 10_000;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct ReadFiles {
    pub(crate) files: ConfigFiles,
    /// Files in the drop-in directory whose names do not end in `.conf`.
    pub(crate) skipped: Vec<String>,
    /// One line per file or directory that could not be read.
    pub(crate) errors: Vec<String>,
}

/// Reads everything that the flags name; relative paths begin at `working_directory`.
pub(crate) fn read(flags: &FlagSettings, working_directory: &Path) -> ReadFiles {
    let mut found = ReadFiles::default();
    if !flags.config.is_empty() {
        let path = working_directory.join(&flags.config);
        match read_file(&path) {
            Ok(file) => found.files.config = Some(file),
            Err(error) => found.errors.push(format!("--config: {error}")),
        }
    }
    if !flags.config_dir.is_empty() {
        read_drop_ins(&working_directory.join(&flags.config_dir), &mut found);
    }
    if !flags.image_credential_provider_config.is_empty() {
        let path = working_directory.join(&flags.image_credential_provider_config);
        read_providers(&path, &mut found);
    }
    found
}

/// One file whatever its name, or the files of a directory with a configuration's extension;
/// subdirectories are skipped. upstream: pkg/credentialprovider/plugin/config.go
fn read_providers(path: &Path, found: &mut ReadFiles) {
    let paths = match provider_files(path) {
        Ok(paths) => paths,
        Err(error) => {
            found.errors.push(format!("{PROVIDERS_FLAG}: {error}"));
            return;
        }
    };
    let mut files = Vec::new();
    for path in &paths {
        match read_file(path) {
            Ok(file) => files.push(file),
            Err(error) => found.errors.push(format!("{PROVIDERS_FLAG}: {error}")),
        }
    }
    if paths.is_empty() {
        let shown = path.display();
        found.errors.push(format!("{PROVIDERS_FLAG}: no .json, .yaml or .yml file in {shown}"));
    } else if !files.is_empty() {
        found.files.credential_providers = Some(files);
    }
}

fn provider_files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let metadata =
        path.metadata().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error: io::Error| format!("cannot list {}: {error}", path.display());
    let mut names = Vec::new();
    for entry in path.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A link to a directory is no directory here, as upstream; reading it then fails.
        if entry.file_type().map_err(failed)?.is_dir() {
            continue;
        }
        names.push(entry.file_name().into_string().map_err(|name| {
            format!("{}: the name {} is not UTF-8", path.display(), name.display())
        })?);
        if names.len() > MAX_FILES {
            return Err(format!("{}: more than {MAX_FILES} files", path.display()));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(file_order(&names).into_iter().map(|name| path.join(name)).collect())
}

fn read_drop_ins(dir: &Path, found: &mut ReadFiles) {
    let mut names = Vec::new();
    if let Err(error) = walk(dir, "", 0, &mut names) {
        found.errors.push(format!("--config-dir: {error}"));
        return;
    }
    let order = drop_in_order(&names);
    found.skipped = order.skipped;
    for name in order.taken {
        match read_file(&dir.join(name)) {
            Ok(file) => found.files.drop_ins.push(file),
            Err(error) => found.errors.push(format!("--config-dir: {error}")),
        }
    }
}

/// Collects the names, relative to the first directory, of everything that is no directory.
fn walk(dir: &Path, within: &str, depth: usize, names: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot list {}: {error}", dir.display());
    if depth > MAX_DEPTH {
        return Err(format!("{}: directories are nested too deeply", dir.display()));
    }
    for entry in dir.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().into_string().map_err(|name| {
            format!("{}: the name {} is not UTF-8", dir.display(), name.display())
        })?;
        let relative = if within.is_empty() { name } else { format!("{within}/{name}") };
        if entry.file_type().map_err(failed)?.is_dir() {
            walk(&entry.path(), &relative, depth + 1, names)?;
        } else {
            names.push(relative);
        }
        if names.len() > MAX_FILES {
            return Err(format!("{}: more than {MAX_FILES} files", dir.display()));
        }
    }
    Ok(())
}

/// Reads one file whole, if it is not too large.
pub(crate) fn read_file(path: &Path) -> Result<SourceFile, String> {
    let shown = path.display();
    let bytes = read_bounded(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let name = clean(path);
    let path = name.into_os_string().into_string();
    let path = path.map_err(|path| format!("the path {} is not UTF-8", path.display()))?;
    Ok(SourceFile { path, bytes })
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("it is a folder, expected a file"));
    }
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    let too_large = || io::Error::other(format!("it has more than {MAX_BYTES} bytes"));
    if metadata.len() > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // A pipe or a device has no length to check in advance.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES { Err(too_large()) } else { Ok(bytes) }
}

/// Without `.` parts, for messages.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests;
