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
use host_paths::{Doing as _, Folder, Links, Trouble};
use ports::LogFiles;
use ports::pod_host::HostFuture;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::HostFolders;
use crate::folders::{MOST_NAMES, Places, named};

#[cfg(test)]
mod tests;

const PACKING_LIMIT: Duration = Duration::from_secs(600);
/// The caller waits a little longer than the work, to get its error.
const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK: usize = 64 * 1024;

impl Places {
    fn log_sizes(&self, logs: &[String]) -> Result<Vec<Option<u64>>, Trouble> {
        let top = match Folder::open(&self.pod_logs) {
            Ok(top) => top,
            Err(trouble) if trouble.is_missing() => return Ok(vec![None; logs.len()]),
            Err(trouble) => return Err(trouble),
        };
        // A log whose size cannot be read does not keep the others from being rotated.
        let size = |log: &String| {
            let found = top.look(self.below_logs(log).ok()?).ok()??;
            let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
            u64::try_from(found.st_size).ok().filter(|_| is_file)
        };
        Ok(logs.iter().map(size).collect())
    }

    /// The directory that a log is in.
    fn folder_of(&self, log: &str) -> Result<Folder, Trouble> {
        let below = self.below_logs(log)?;
        let Some(parent) = below.parent() else {
            return Err(Trouble::refused("use the log path", Path::new(log), "not a file's path"));
        };
        Folder::open(&self.pod_logs)?.folder(parent)
    }

    fn log_names(&self, log: &str) -> Result<Vec<String>, Trouble> {
        let names = self.folder_of(log)?.names(MOST_NAMES)?;
        // A name that is not UTF-8 was not created by a rotation.
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn rename_log(&self, log: &str, from: &str, to: &str) -> Result<(), Trouble> {
        let folder = self.folder_of(log)?;
        named(from, folder.path())?;
        named(to, folder.path())?;
        rustix::fs::renameat_with(&folder, from, &folder, to, RenameFlags::NOREPLACE)
            .doing("rename the log", &folder.path_of(from))
    }

    fn remove_log(&self, log: &str, name: &str) -> Result<(), Trouble> {
        let folder = self.folder_of(log)?;
        named(name, folder.path())?;
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Trouble::new("remove the log", &folder.path_of(name), errno)),
        }
    }

    fn pack_log(&self, log: &str, name: &str, until: Instant) -> Result<(), Trouble> {
        let folder = self.folder_of(log)?;
        named(name, folder.path())?;
        let (half_done, packed) = (format!("{name}.tmp"), format!("{name}.gz"));
        named(&half_done, folder.path())?;
        let plain = folder.regular(name, Links::Refused)?;
        let made = write_packed(&folder, &plain, &half_done, until).and_then(|()| {
            rustix::fs::renameat_with(
                &folder,
                &half_done,
                &folder,
                &packed,
                RenameFlags::NOREPLACE,
            )
            .doing("rename to the packed log", &folder.path_of(&half_done))?;
            folder.sync()
        });
        if let Err(trouble) = made {
            let _gone = rustix::fs::unlinkat(&folder, &half_done, AtFlags::empty());
            return Err(trouble);
        }
        self.remove_log(log, name)
    }
}

fn write_packed(
    folder: &Folder,
    mut plain: &File,
    half_done: &str,
    until: Instant,
) -> Result<(), Trouble> {
    let path = folder.path_of(half_done);
    let mode = Mode::from_raw_mode(
        rustix::fs::fstat(plain).doing("look at the log to pack into", &path)?.st_mode & 0o777,
    );
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, half_done, flags, mode).doing("make", &path)?;
    // The umask may have cleared bits; the compressed log keeps the original's mode.
    rustix::fs::fchmod(&file, mode).doing("set the mode of", &path)?;
    let mut packing = GzEncoder::new(File::from(file), Compression::default());
    let mut block = vec![0; BLOCK];
    loop {
        if Instant::now() >= until {
            return Err(Trouble::new("pack into", &path, Errno::TIMEDOUT));
        }
        let count = plain.read(&mut block).doing("read the log to pack into", &path)?;
        let Some(read) = block.get(..count).filter(|read| !read.is_empty()) else { break };
        packing.write_all(read).doing("write", &path)?;
    }
    let file = packing.finish().doing("write", &path)?;
    file.sync_all().doing("write to disk", &path)?;
    if Instant::now() >= until {
        return Err(Trouble::new("pack into", &path, Errno::TIMEDOUT));
    }
    Ok(())
}

impl LogFiles for HostFolders {
    fn sizes<'a>(&'a self, logs: &'a [String]) -> HostFuture<'a, Vec<Option<u64>>> {
        let logs = logs.to_vec();
        self.call("look at the logs", move |places| places.log_sizes(&logs))
    }

    fn names<'a>(&'a self, log: &'a str) -> HostFuture<'a, Vec<String>> {
        let log = log.to_owned();
        self.call("list a container's logs", move |places| places.log_names(&log))
    }

    fn rename<'a>(&'a self, log: &'a str, from: &'a str, to: &'a str) -> HostFuture<'a, ()> {
        let [log, from, to] = [log, from, to].map(str::to_owned);
        self.call("rename a log", move |places| places.rename_log(&log, &from, &to))
    }

    fn pack<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        let [log, name] = [log, name].map(str::to_owned);
        let until = Instant::now() + PACKING_LIMIT;
        self.call_within(PACKING_LIMIT + PATIENCE, "pack a log", move |places| {
            places.pack_log(&log, &name, until)
        })
    }

    fn remove<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        let [log, name] = [log, name].map(str::to_owned);
        self.call("remove a log", move |places| places.remove_log(&log, &name))
    }
}
