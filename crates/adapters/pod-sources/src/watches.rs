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

use crate::listing::Shape;

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
const MOST_LINKED: usize = 256;

/// What happened, as far as a reader of manifests cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// A name appeared; whether something is being written to it is not known yet.
    Appeared(OsString),
    /// Something is being written to it.
    Written(OsString),
    /// A name is complete.
    Finished(OsString),
    /// Read again, for any other reason.
    Look,
}

/// Which names of a watched directory matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Interest {
    /// All names but dot names.
    all: bool,
    /// Dot names too (symlinks lead through them).
    dots: bool,
    names: Vec<OsString>,
}

impl Interest {
    fn takes(&self, name: &OsStr) -> bool {
        let dotted = name.as_bytes().starts_with(b".");
        (self.all && (!dotted || self.dots)) || self.names.iter().any(|wanted| wanted == name)
    }
}

/// The watched directories by watch descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout(HashMap<i32, Interest>);

#[derive(Debug)]
pub(crate) struct Watches {
    descriptor: AsyncFd<Arc<OwnedFd>>,
    layout: Layout,
}

impl Watches {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
        let descriptor = AsyncFd::new(Arc::new(descriptor))?;
        Ok(Self { descriptor, layout: Layout::default() })
    }

    /// For [`lay`], on any thread.
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        self.descriptor.get_ref().clone()
    }

    /// Replaces the current layout by one that [`lay`] returned.
    pub(crate) fn adopt(&mut self, layout: Layout) {
        for number in self.layout.0.keys().filter(|number| !layout.0.contains_key(number)) {
            // A directory that was removed has taken its watch with it.
            let _gone = inotify::remove_watch(&**self.descriptor.get_ref(), *number);
        }
        self.layout = layout;
    }

    /// Waits for changes. Cancel-safe.
    pub(crate) async fn changes(&mut self) -> io::Result<Vec<Change>> {
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
pub(crate) fn lay(
    descriptor: &OwnedFd,
    path: &Path,
    shape: Shape,
    linked: &[PathBuf],
) -> (Layout, Result<(), Errno>) {
    let mut wanted: Vec<(PathBuf, Interest)> = Vec::new();
    let (above, name) = nearest_above(path, shape);
    wanted.push((above, Interest { names: vec![name], ..Interest::default() }));
    if shape == Shape::Folder {
        let interest = Interest { all: true, dots: !linked.is_empty(), names: Vec::new() };
        wanted.push((path.to_owned(), interest));
    }
    for end in linked.iter().take(MOST_LINKED) {
        if let Some((folder, name)) = end.parent().zip(end.file_name()) {
            let interest = Interest { names: vec![name.to_owned()], ..Interest::default() };
            wanted.push((folder.to_owned(), interest));
        }
    }
    let mut folders: HashMap<i32, Interest> = HashMap::new();
    let mut failed = Ok(());
    for (folder, interest) in wanted {
        match inotify::add_watch(descriptor, &folder, EVENTS) {
            Ok(number) => {
                let entry = folders.entry(number).or_default();
                entry.all |= interest.all;
                entry.dots |= interest.dots;
                entry.names.extend(interest.names);
            }
            // Removed since it was listed: the watch above it reports that.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => failed = failed.and(Err(errno)),
        }
    }
    (Layout(folders), failed)
}

fn read_all(
    descriptor: &OwnedFd,
    folders: &HashMap<i32, Interest>,
    changes: &mut Vec<Change>,
) -> Result<(), Errno> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(descriptor, &mut buffer);
    loop {
        let event = reader.next()?;
        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
        if let Some(change) = meaning(event.wd(), event.events(), name, folders) {
            changes.push(change);
        }
    }
}

fn meaning(
    folder: i32,
    events: ReadFlags,
    name: Option<&OsStr>,
    folders: &HashMap<i32, Interest>,
) -> Option<Change> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Change::Look);
    }
    let interest = folders.get(&folder)?;
    if events.contains(ReadFlags::IGNORED) {
        return None;
    }
    let Some(name) = name else {
        // The watched directory itself went away or changed.
        return Some(Change::Look);
    };
    if !interest.takes(name) {
        return None;
    }
    if events.contains(ReadFlags::ISDIR) {
        return Some(Change::Look);
    }
    Some(if events.contains(ReadFlags::CREATE) {
        Change::Appeared(name.to_owned())
    } else if events.contains(ReadFlags::MODIFY) {
        Change::Written(name.to_owned())
    } else {
        Change::Finished(name.to_owned())
    })
}

/// The nearest existing directory above a path, and the name in it that leads to the path.
fn nearest_above(path: &Path, shape: Shape) -> (PathBuf, OsString) {
    let mut above = path;
    loop {
        let name = above.file_name().unwrap_or_default().to_owned();
        let Some(parent) = above.parent() else { return (PathBuf::from("/"), name) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if shape != Shape::Missing || parent.is_dir() {
            return (parent.to_owned(), name);
        }
        above = parent;
    }
}
