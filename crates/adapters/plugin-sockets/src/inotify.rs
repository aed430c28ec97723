//! Waits for changes of names in directories.
//!
//! Rule: reports that something changed, not what: the caller looks for itself.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

pub(crate) struct NameChanges {
    descriptor: AsyncFd<Arc<OwnedFd>>,
    watched: BTreeSet<i32>,
}

/// Adds watches, on any thread.
#[derive(Clone)]
pub(crate) struct WatchSetter(Arc<OwnedFd>);

impl WatchSetter {
    /// Watches a directory; the number of its watch.
    pub(crate) fn watch(&self, dir: &Path) -> Result<i32, Errno> {
        inotify::add_watch(&*self.0, dir, EVENTS)
    }
}

impl NameChanges {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
        let descriptor = AsyncFd::new(Arc::new(descriptor))?;
        Ok(Self { descriptor, watched: BTreeSet::new() })
    }

    pub(crate) fn setter(&self) -> WatchSetter {
        WatchSetter(self.descriptor.get_ref().clone())
    }

    /// Drops the watches that are not among these.
    pub(crate) fn retain(&mut self, watched: BTreeSet<i32>) {
        for number in self.watched.difference(&watched) {
            // A directory that was removed has taken its watch with it.
            let _gone = inotify::remove_watch(&**self.descriptor.get_ref(), *number);
        }
        self.watched = watched;
    }

    /// Waits until a name changed, or events were lost. All events that are there are consumed.
    /// Cancel-safe: what it has consumed, it returns.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(&**ready.get_inner(), &mut buffer);
            let mut any = false;
            loop {
                match reader.next() {
                    Ok(event) => {
                        // IGNORED follows the end of a watch, which was reported by itself.
                        any |= !event.events().contains(inotify::ReadFlags::IGNORED);
                    }
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            if any {
                return Ok(());
            }
        }
    }
}
