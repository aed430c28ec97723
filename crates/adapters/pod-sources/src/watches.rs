//! inotify watches that follow a path as it appears and disappears.
//!
//! Rule: reports which names changed and how, and nothing of their content. A path that does not
//! exist is waited for in its nearest existing ancestor.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::listing::PathKind;

const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Symlinks whose targets are watched; changes of further ones are noticed by the next periodic
/// read.
const MAX_SYMLINK_TARGETS: usize = 256;

/// What happened, as far as a reader of manifests cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileChange {
    /// A name appeared; whether something is being written to it is not known yet.
    Appeared(OsString),
    /// Something is being written to it.
    Written(OsString),
    /// A name is complete.
    Finished(OsString),
    /// Read again, for any other reason.
    Rescan,
}

/// Which names of a watched directory matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct WatchedNames {
    /// All names but dot names.
    all: bool,
    /// Dot names too (symlinks lead through them).
    include_dot_names: bool,
    names: Vec<OsString>,
}

impl WatchedNames {
    fn includes(&self, name: &OsStr) -> bool {
        let dotted = name.as_bytes().starts_with(b".");
        (self.all && (!dotted || self.include_dot_names))
            || self.names.iter().any(|wanted| wanted == name)
    }
}

/// The watched directories by watch descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WatchLayout(HashMap<i32, WatchedNames>);

#[derive(Debug)]
pub(crate) struct Watches {
    descriptor: AsyncFd<Arc<OwnedFd>>,
    layout: WatchLayout,
}

impl Watches {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
        let descriptor = AsyncFd::new(Arc::new(descriptor))?;
        Ok(Self { descriptor, layout: WatchLayout::default() })
    }

    /// For [`add_watches`], on any thread.
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        self.descriptor.get_ref().clone()
    }

    /// Replaces the current layout by one that [`add_watches`] returned.
    pub(crate) fn adopt(&mut self, layout: WatchLayout) {
        for number in self.layout.0.keys().filter(|number| !layout.0.contains_key(number)) {
            // A directory that was removed has taken its watch with it.
            let _gone = inotify::remove_watch(&**self.descriptor.get_ref(), *number);
        }
        self.layout = layout;
    }

    /// Waits for changes. Cancel-safe.
    pub(crate) async fn changes(&mut self) -> io::Result<Vec<FileChange>> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            let mut changes = Vec::new();
            let finished = read_all(ready.get_inner(), &self.layout.0, &mut changes);
            match finished {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(errno) => return Err(errno.into()),
                Ok(()) => {}
            }
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }
}

/// Sets the watches that a path of this shape needs. May block on the file system. Watches that are
/// no longer needed stay until the layout is adopted.
pub(crate) fn add_watches(
    descriptor: &OwnedFd,
    path: &Path,
    path_kind: PathKind,
    symlink_targets: &[PathBuf],
) -> (WatchLayout, Result<(), Errno>) {
    let mut wanted: Vec<(PathBuf, WatchedNames)> = Vec::new();
    let (above, name) = nearest_above(path, path_kind);
    wanted.push((above, WatchedNames { names: vec![name], ..WatchedNames::default() }));
    if path_kind == PathKind::Dir {
        let watched_names = WatchedNames {
            all: true,
            include_dot_names: !symlink_targets.is_empty(),
            names: Vec::new(),
        };
        wanted.push((path.to_owned(), watched_names));
    }
    for end in symlink_targets.iter().take(MAX_SYMLINK_TARGETS) {
        if let Some((dir, name)) = end.parent().zip(end.file_name()) {
            let watched_names =
                WatchedNames { names: vec![name.to_owned()], ..WatchedNames::default() };
            wanted.push((dir.to_owned(), watched_names));
        }
    }
    let mut dirs: HashMap<i32, WatchedNames> = HashMap::new();
    let mut failed = Ok(());
    for (dir, watched_names) in wanted {
        match inotify::add_watch(descriptor, &dir, EVENTS) {
            Ok(number) => {
                let entry = dirs.entry(number).or_default();
                entry.all |= watched_names.all;
                entry.include_dot_names |= watched_names.include_dot_names;
                entry.names.extend(watched_names.names);
            }
            // Removed since it was listed: the watch above it reports that.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => failed = failed.and(Err(errno)),
        }
    }
    (WatchLayout(dirs), failed)
}

fn read_all(
    descriptor: &OwnedFd,
    dirs: &HashMap<i32, WatchedNames>,
    changes: &mut Vec<FileChange>,
) -> Result<(), Errno> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(descriptor, &mut buffer);
    loop {
        let event = reader.next()?;
        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
        if let Some(change) = to_change(event.wd(), event.events(), name, dirs) {
            changes.push(change);
        }
    }
}

fn to_change(
    dir: i32,
    events: ReadFlags,
    name: Option<&OsStr>,
    dirs: &HashMap<i32, WatchedNames>,
) -> Option<FileChange> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(FileChange::Rescan);
    }
    let watched_names = dirs.get(&dir)?;
    if events.contains(ReadFlags::IGNORED) {
        return None;
    }
    let Some(name) = name else {
        // The watched directory itself went away or changed.
        return Some(FileChange::Rescan);
    };
    if !watched_names.includes(name) {
        return None;
    }
    if events.contains(ReadFlags::ISDIR) {
        return Some(FileChange::Rescan);
    }
    Some(if events.contains(ReadFlags::CREATE) {
        FileChange::Appeared(name.to_owned())
    } else if events.contains(ReadFlags::MODIFY) {
        FileChange::Written(name.to_owned())
    } else {
        FileChange::Finished(name.to_owned())
    })
}

/// The nearest existing directory above a path, and the name in it that leads to the path.
fn nearest_above(path: &Path, path_kind: PathKind) -> (PathBuf, OsString) {
    let mut above = path;
    loop {
        let name = above.file_name().unwrap_or_default().to_owned();
        let Some(parent) = above.parent() else { return (PathBuf::from("/"), name) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if path_kind != PathKind::Missing || parent.is_dir() {
            return (parent.to_owned(), name);
        }
        above = parent;
    }
}
