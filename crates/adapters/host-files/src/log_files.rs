//! Log files of containers as rotation needs them: sizes, names, renames, compression.
//!
//! Rule: beneath the directory of pod logs, regular files only, nothing overwritten. A compressed
//! file is complete and on disk before the original is removed; compression that takes too long
//! stops by itself, so that no abandoned thread changes files later.
//!
//! upstream: pkg/kubelet/logs/container_log_manager.go

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use host_paths::{OpenDir, PathError, PathErrorExt as _, SymlinkPolicy};
use ports::LogFiles;
use ports::pod_host::HostFuture;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::HostPodDirs;
use crate::pod_dirs::{HostLayout, MAX_NAMES, check_file_name};

#[cfg(test)]
mod tests;

const PACKING_LIMIT: Duration = Duration::from_secs(600);
/// The caller waits a little longer than the work, to get its error.
const PACKING_GRACE: Duration = Duration::from_secs(30);
const BLOCK: usize = 64 * 1024;

impl HostLayout {
    fn log_sizes(&self, logs: &[String]) -> Result<Vec<Option<u64>>, PathError> {
        let top = match OpenDir::open(&self.pod_logs) {
            Ok(top) => top,
            Err(path_error) if path_error.is_missing() => return Ok(vec![None; logs.len()]),
            Err(path_error) => return Err(path_error),
        };
        // A log whose size cannot be read does not keep the others from being rotated.
        let size = |log: &String| {
            let found = top.stat(self.below_logs(log).ok()?).ok()??;
            let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
            u64::try_from(found.st_size).ok().filter(|_| is_file)
        };
        Ok(logs.iter().map(size).collect())
    }

    /// The directory that a log is in.
    fn dir_of(&self, log: &str) -> Result<OpenDir, PathError> {
        let below = self.below_logs(log)?;
        let Some(parent) = below.parent() else {
            return Err(PathError::refused(
                "use the log path",
                Path::new(log),
                "not a file's path",
            ));
        };
        OpenDir::open(&self.pod_logs)?.dir(parent)
    }

    fn log_names(&self, log: &str) -> Result<Vec<String>, PathError> {
        let names = self.dir_of(log)?.names(MAX_NAMES)?;
        // A name that is not UTF-8 was not created by a rotation.
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn rename_log(&self, log: &str, from: &str, to: &str) -> Result<(), PathError> {
        let dir = self.dir_of(log)?;
        check_file_name(from, dir.path())?;
        check_file_name(to, dir.path())?;
        rustix::fs::renameat_with(&dir, from, &dir, to, RenameFlags::NOREPLACE)
            .operation("rename the log", &dir.path_of(from))
    }

    fn remove_log(&self, log: &str, name: &str) -> Result<(), PathError> {
        let dir = self.dir_of(log)?;
        check_file_name(name, dir.path())?;
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(PathError::new("remove the log", &dir.path_of(name), errno)),
        }
    }

    fn pack_log(&self, log: &str, name: &str, until: Instant) -> Result<(), PathError> {
        let dir = self.dir_of(log)?;
        check_file_name(name, dir.path())?;
        let (temporary_name, packed) = (format!("{name}.tmp"), format!("{name}.gz"));
        check_file_name(&temporary_name, dir.path())?;
        let plain = dir.open_regular(name, SymlinkPolicy::Refused)?;
        let made = write_packed(&dir, &plain, &temporary_name, until).and_then(|()| {
            rustix::fs::renameat_with(&dir, &temporary_name, &dir, &packed, RenameFlags::NOREPLACE)
                .operation("rename to the packed log", &dir.path_of(&temporary_name))?;
            dir.sync()
        });
        if let Err(path_error) = made {
            let _gone = rustix::fs::unlinkat(&dir, &temporary_name, AtFlags::empty());
            return Err(path_error);
        }
        self.remove_log(log, name)
    }
}

fn write_packed(
    dir: &OpenDir,
    mut plain: &File,
    temporary_name: &str,
    until: Instant,
) -> Result<(), PathError> {
    let path = dir.path_of(temporary_name);
    let mode = Mode::from_raw_mode(
        rustix::fs::fstat(plain).operation("look at the log to pack into", &path)?.st_mode & 0o777,
    );
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, temporary_name, flags, mode).operation("make", &path)?;
    // The umask may have cleared bits; the compressed log keeps the original's mode.
    rustix::fs::fchmod(&file, mode).operation("set the mode of", &path)?;
    let mut packing = GzEncoder::new(File::from(file), Compression::default());
    let mut block = vec![0; BLOCK];
    loop {
        if Instant::now() >= until {
            return Err(PathError::new("pack into", &path, Errno::TIMEDOUT));
        }
        let count = plain.read(&mut block).operation("read the log to pack into", &path)?;
        let Some(read) = block.get(..count).filter(|read| !read.is_empty()) else { break };
        packing.write_all(read).operation("write", &path)?;
    }
    let file = packing.finish().operation("write", &path)?;
    file.sync_all().operation("write to disk", &path)?;
    if Instant::now() >= until {
        return Err(PathError::new("pack into", &path, Errno::TIMEDOUT));
    }
    Ok(())
}

impl LogFiles for HostPodDirs {
    fn sizes<'a>(&'a self, logs: &'a [String]) -> HostFuture<'a, Vec<Option<u64>>> {
        let logs = logs.to_vec();
        self.call("look at the logs", move |layout| layout.log_sizes(&logs))
    }

    fn names<'a>(&'a self, log: &'a str) -> HostFuture<'a, Vec<String>> {
        let log = log.to_owned();
        self.call("list a container's logs", move |layout| layout.log_names(&log))
    }

    fn rename<'a>(&'a self, log: &'a str, from: &'a str, to: &'a str) -> HostFuture<'a, ()> {
        let [log, from, to] = [log, from, to].map(str::to_owned);
        self.call("rename a log", move |layout| layout.rename_log(&log, &from, &to))
    }

    fn pack<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        let [log, name] = [log, name].map(str::to_owned);
        let until = Instant::now() + PACKING_LIMIT;
        self.call_within(PACKING_LIMIT + PACKING_GRACE, "pack a log", move |layout| {
            layout.pack_log(&log, &name, until)
        })
    }

    fn remove<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        let [log, name] = [log, name].map(str::to_owned);
        self.call("remove a log", move |layout| layout.remove_log(&log, &name))
    }
}
