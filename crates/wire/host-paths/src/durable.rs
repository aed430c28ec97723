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

use crate::beneath::{Folder, check_name};
use crate::trouble::{Doing as _, Trouble};

/// How durable a write is when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Complete, but a power cut may lose it.
    Whole,
    /// On disk, with its name.
    OnDisk,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Prefix of temporary names; readers of the directory skip dot files.
const PREFIX: &str = ".writing-";

pub fn write_whole(
    folder: &Folder,
    name: impl AsRef<OsStr>,
    content: &[u8],
    mode: u32,
    settled: Settled,
) -> Result<(), Trouble> {
    let name = name.as_ref();
    let path = folder.path_of(name);
    check_name(name).map_err(|why| Trouble::refused("write", &path, &why))?;
    let temporary = temporary_name();
    let written = write_temporary(folder, &temporary, content, mode, settled)
        .and_then(|()| rustix::fs::renameat(folder, &*temporary, folder, name).map_err(Into::into));
    if let Err(error) = written {
        // After a failed write the temporary file must not fill the disk further.
        let _gone = rustix::fs::unlinkat(folder, &*temporary, AtFlags::empty());
        return Err(Trouble::new("write", &path, error));
    }
    if settled == Settled::OnDisk {
        folder.sync()?;
    }
    Ok(())
}

fn write_temporary(
    folder: &Folder,
    temporary: &OsStr,
    content: &[u8],
    mode: u32,
    settled: Settled,
) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let descriptor =
        rustix::fs::openat(folder, temporary, flags, Mode::from_raw_mode(mode & 0o600))?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(content)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    if settled == Settled::OnDisk {
        file.sync_all()?;
    }
    Ok(())
}

fn temporary_name() -> OsString {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}{number}", own_prefix()).into()
}

/// Differs between two processes, even if both have the same PID.
fn own_prefix() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        format!("{PREFIX}{}-{}-", std::process::id(), now.as_nanos())
    })
}

impl Folder {
    /// Removes temporary files that interrupted writes of earlier processes have left in this
    /// directory, and returns the other names. Only for a directory that no other process writes
    /// to.
    pub fn finished_names(&self, most: usize) -> Result<Vec<OsString>, Trouble> {
        let mut names = self.names(most)?;
        let mut failed = Ok(());
        names.retain(|name| {
            let text = name.to_string_lossy();
            if !text.starts_with(PREFIX) {
                return true;
            }
            if !text.starts_with(own_prefix()) {
                let gone = rustix::fs::unlinkat(self, &**name, AtFlags::empty());
                if let Err(trouble) = gone.doing("remove", &self.path_of(name)) {
                    failed = Err(trouble);
                }
            }
            false
        });
        failed.map(|()| names)
    }
}
