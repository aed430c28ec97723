//! The directory in which plugins put their sockets, with its sub-directories.
//!
//! Rule: inotify says when to look, and each look is complete, so that lost events cost nothing. A
//! directory is watched before it is listed. Names with a leading dot are skipped, symlinks are not
//! followed, and what is no socket is reported with its kind.
//!
//! upstream: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host_paths::{BlockingPool, OpenDir};
use ports::PortFuture;
use ports::plugins::{PluginDirScan, PluginDirWatch, SocketIdentity};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use tokio::time::Instant;
use tracing::warn;

use crate::inotify::{NameChanges, WatchSetter};

#[cfg(test)]
mod tests;

const SCAN_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks, so that a socket that flaps costs little.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// After a look that failed, or where nothing can be watched.
const PERIOD_WITHOUT_WATCH: Duration = Duration::from_secs(1);
const DIR_MODE: u32 = 0o750;
/// Names in one directory; more are a mistake.
const MAX_NAMES: usize = 4096;
const MAX_DIRS: usize = 256;
const MAX_DEPTH: usize = 8;
const MAX_SOCKETS: usize = 1024;
const MAX_IGNORED: usize = 64;

/// Watches the directory of plugins' sockets, which it creates.
pub struct PluginDir {
    path: PathBuf,
    changes: Option<NameChanges>,
    pool: BlockingPool,
    last_look: Option<Instant>,
    /// Events were consumed, or the last look failed: look again, at this time.
    look_at: Option<Instant>,
}

impl PluginDir {
    /// Must be called within a tokio runtime.
    pub fn new(path: &Path) -> Self {
        let changes = NameChanges::new().inspect_err(|error| {
            warn!(
                err = %error,
                path = %path.display(),
                "Directory of plugins cannot be watched; it is read every second instead"
            );
        });
        Self {
            path: path.to_owned(),
            changes: changes.ok(),
            pool: BlockingPool::new("plugin-dirs", 2, SCAN_LIMIT),
            last_look: None,
            look_at: Some(Instant::now()),
        }
    }

    /// Waits until it is time to look. Cancel-safe.
    async fn wait(&mut self) {
        if let (None, Some(changes)) = (self.look_at, &mut self.changes) {
            match changes.changed().await {
                Ok(()) => {
                    let earliest = self.last_look.map(|at| at + SHORTEST_PAUSE);
                    self.look_at = Some(earliest.unwrap_or_else(Instant::now));
                }
                Err(error) => {
                    warn!(err = %error, path = %self.path.display(), "Watching plugins failed");
                    self.changes = None;
                }
            }
        }
        let unwatched = || self.last_look.map(|at| at + PERIOD_WITHOUT_WATCH);
        if let Some(at) = self.look_at.or_else(unwatched) {
            tokio::time::sleep_until(at).await;
        }
    }

    async fn look(&mut self) -> Result<PluginDirScan, String> {
        self.wait().await;
        let path = self.path.clone();
        let setter = self.changes.as_ref().map(NameChanges::setter);
        let look = self.pool.run(move || DirWalk::new(setter).walk(&path)).await;
        let now = Instant::now();
        self.last_look = Some(now);
        // Until it succeeds.
        self.look_at = Some(now + PERIOD_WITHOUT_WATCH);
        let walk = look.map_err(|error| format!("{}: {error}", self.path.display()))??;
        if let Some(changes) = &mut self.changes {
            changes.retain(walk.watched);
            self.look_at = walk.unwatched.then_some(now + PERIOD_WITHOUT_WATCH);
        }
        Ok(walk.scan)
    }
}

impl PluginDirWatch for PluginDir {
    fn dir(&self) -> String {
        self.path.display().to_string()
    }

    fn next(&mut self) -> PortFuture<'_, Result<PluginDirScan, String>> {
        Box::pin(self.look())
    }
}

/// One look at everything.
struct DirWalk {
    setter: Option<WatchSetter>,
    scan: PluginDirScan,
    watched: BTreeSet<i32>,
    /// Some directory could not be watched.
    unwatched: bool,
    dirs: usize,
}

impl DirWalk {
    fn new(setter: Option<WatchSetter>) -> Self {
        let scan = PluginDirScan { sockets: BTreeMap::new(), ignored: BTreeMap::new() };
        Self { setter, scan, watched: BTreeSet::new(), unwatched: false, dirs: 0 }
    }

    fn walk(mut self, root: &Path) -> Result<Self, String> {
        OpenDir::make(root, DIR_MODE).map_err(|error| error.to_string())?;
        let mut open = vec![(root.to_owned(), 0)];
        while let Some((path, depth)) = open.pop() {
            self.dirs += 1;
            if self.dirs > MAX_DIRS || depth > MAX_DEPTH {
                let limit = format!("more than {MAX_DIRS} directories, or {MAX_DEPTH} levels");
                self.ignore(&path, &limit);
                continue;
            }
            self.watch(&path)?;
            let dir = match OpenDir::open(&path) {
                Ok(dir) => dir,
                // Removed since it was listed; the watch above it reports that.
                Err(error) if error.is_missing() && depth > 0 => continue,
                Err(error) => return Err(error.to_string()),
            };
            for name in dir.names(MAX_NAMES).map_err(|error| error.to_string())? {
                if !name.as_bytes().starts_with(b".") {
                    let path = path.join(&name);
                    if self.visit(&dir, &path)? {
                        open.push((path, depth + 1));
                    }
                }
            }
        }
        Ok(self)
    }

    fn watch(&mut self, dir: &Path) -> Result<(), String> {
        let Some(setter) = &self.setter else { return Ok(()) };
        match setter.watch(dir) {
            Ok(number) => {
                self.watched.insert(number);
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            // No more watches: look periodically instead.
            Err(Errno::NOSPC) => self.unwatched = true,
            Err(errno) => return Err(format!("cannot watch {}: {errno}", dir.display())),
        }
        Ok(())
    }

    /// Whether it is a directory to be walked.
    fn visit(&mut self, dir: &OpenDir, path: &Path) -> Result<bool, String> {
        let name = path.file_name().unwrap_or_default();
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = match rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, flags) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(format!("cannot look at {}: {errno}", path.display())),
        };
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Directory => return Ok(true),
            FileType::Socket => self.add_socket(path, &found),
            FileType::Symlink => self.ignore(
                path,
                "a symlink, which is not followed: the plugin must create its socket here",
            ),
            FileType::Fifo => self.ignore(path, "a named pipe and not a socket"),
            _ => self.ignore(path, "not a socket"),
        }
        Ok(false)
    }

    fn add_socket(&mut self, path: &Path, found: &Statx) {
        let Some(text) = path.to_str() else {
            self.ignore(path, "its name is not UTF-8");
            return;
        };
        if self.scan.sockets.len() >= MAX_SOCKETS {
            self.ignore(path, &format!("there are more than {MAX_SOCKETS} sockets"));
            return;
        }
        // The time of creation where the file system keeps it: a change of mode or owner is not
        // another socket.
        let has_creation = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let time = if has_creation { found.stx_btime } else { found.stx_mtime };
        let nanos = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.into());
        let identity = SocketIdentity { inode: found.stx_ino, created: nanos };
        self.scan.sockets.insert(text.to_owned(), identity);
    }

    fn ignore(&mut self, path: &Path, reason: &str) {
        if self.scan.ignored.len() < MAX_IGNORED {
            self.scan.ignored.insert(path.to_string_lossy().into_owned(), reason.to_owned());
        }
    }
}
