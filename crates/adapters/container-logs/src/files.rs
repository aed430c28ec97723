//! The files of one container's log, oldest first.
//!
//! Rule: a rotated file is the log's name, a dot, `YYYYMMDD-HHMMSS`, and `.gz` once it has been
//! compressed; other files in the directory are ignored. upstream: logs/container_log_manager.go

use crate::LogError;
use std::path::{Path, PathBuf};

/// How many bytes of a compressed file are read at most, against zip bombs.
const MAX_UNPACKED_BYTES: u64 = 1 << 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    pub path: PathBuf,
    pub is_packed: bool,
}

impl LogFile {
    pub(crate) fn open(&self) -> std::io::Result<Box<dyn std::io::Read + Send + Sync>> {
        use std::io::Read;
        let file = open_regular(&self.path)?;
        if self.is_packed {
            return Ok(Box::new(flate2::read::MultiGzDecoder::new(file).take(MAX_UNPACKED_BYTES)));
        }
        Ok(Box::new(file))
    }
}

/// Opens a regular file, without blocking on a FIFO.
pub(crate) fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// The files of the log at `path`, oldest first, the one being written last. That one may be
/// briefly missing during a rotation.
pub fn log_files(path: &Path) -> Result<Vec<LogFile>, LogError> {
    let failed = |cause| LogError { path: path.display().to_string(), cause };
    let rotated = rotated_files(path).map_err(failed)?;
    let mut files: Vec<LogFile> = rotated.into_iter().map(|(_, file)| file).collect();
    if path.exists() {
        files.push(LogFile { path: path.to_path_buf(), is_packed: false });
    }
    if files.is_empty() {
        return Err(failed(std::io::ErrorKind::NotFound.into()));
    }
    Ok(files)
}

/// The rotated files of the log at `path`, oldest first, each with its timestamp.
pub(crate) fn rotated_files(path: &Path) -> std::io::Result<Vec<(String, LogFile)>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(std::io::Error::other("not the path of a file"));
    };
    let mut rotated = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let Some(found) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Some(stamp) = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) else {
            continue;
        };
        let (stamp, is_packed) = match stamp.strip_suffix(".gz") {
            Some(stamp) => (stamp, true),
            None => (stamp, false),
        };
        if is_stamp(stamp) {
            rotated.push((stamp.to_owned(), LogFile { path: entry.path(), is_packed }));
        }
    }
    // A file that is being compressed exists twice: the uncompressed one is complete.
    rotated.sort_by(|a, b| (&a.0, a.1.is_packed).cmp(&(&b.0, b.1.is_packed)));
    rotated.dedup_by(|later, earlier| later.0 == earlier.0);
    Ok(rotated)
}

fn is_stamp(text: &str) -> bool {
    text.len() == 15
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
