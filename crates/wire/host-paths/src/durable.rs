//! Atomic file writes: a file is complete or not there.
//!
//! Rule: the content is written to a temporary name in the same directory and renamed into place;
//! if asked for, file and directory are on disk before the call returns. A write that fails leaves
//! the old content and no temporary file.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::beneath::{OpenDir, check_name};
use crate::path_error::{PathError, PathErrorExt as _};

/// How durable a write is when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteDurability {
    /// Complete, but a power cut may lose it.
    Atomic,
    /// On disk, with its name.
    Synced,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Prefix of temporary names; readers of the directory skip dot files.
const PREFIX: &str = ".writing-";

pub fn write_whole(
    dir: &OpenDir,
    name: impl AsRef<OsStr>,
    content: &[u8],
    mode: u32,
    durability: WriteDurability,
) -> Result<(), PathError> {
    let name = name.as_ref();
    let path = dir.path_of(name);
    check_name(name).map_err(|error| PathError::refused("write", &path, &error.to_string()))?;
    let temporary = temporary_name();
    let written = write_temporary(dir, &temporary, content, mode, durability)
        .and_then(|()| rustix::fs::renameat(dir, &*temporary, dir, name).map_err(Into::into));
    if let Err(error) = written {
        // After a failed write the temporary file must not fill the disk further.
        let _gone = rustix::fs::unlinkat(dir, &*temporary, AtFlags::empty());
        return Err(PathError::new("write", &path, error));
    }
    if durability == WriteDurability::Synced {
        dir.sync()?;
    }
    Ok(())
}

fn write_temporary(
    dir: &OpenDir,
    temporary: &OsStr,
    content: &[u8],
    mode: u32,
    durability: WriteDurability,
) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let descriptor = rustix::fs::openat(dir, temporary, flags, Mode::from_raw_mode(mode & 0o600))?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(content)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    if durability == WriteDurability::Synced {
        file.sync_all()?;
    }
    Ok(())
}

fn temporary_name() -> OsString {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}{number}", process_prefix()).into()
}

/// Differs between two processes, even if both have the same PID.
fn process_prefix() -> &'static str {
    static PROCESS_PREFIX: OnceLock<String> = OnceLock::new();
    PROCESS_PREFIX.get_or_init(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        format!("{PREFIX}{}-{}-", std::process::id(), now.as_nanos())
    })
}

impl OpenDir {
    /// Removes temporary files that interrupted writes of earlier processes have left in this
    /// directory, and returns the other names. Only for a directory that no other process writes
    /// to.
    pub fn committed_names(&self, max_names: usize) -> Result<Vec<OsString>, PathError> {
        let mut names = self.names(max_names)?;
        let mut failed = Ok(());
        names.retain(|name| {
            let text = name.to_string_lossy();
            if !text.starts_with(PREFIX) {
                return true;
            }
            if !text.starts_with(process_prefix()) {
                let gone = rustix::fs::unlinkat(self, &**name, AtFlags::empty());
                if let Err(path_error) = gone.operation("remove", &self.path_of(name)) {
                    failed = Err(path_error);
                }
            }
            false
        });
        failed.map(|()| names)
    }
}
