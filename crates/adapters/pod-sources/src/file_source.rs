//! Manifests from a file or a directory, reported when they change.
//!
//! Rule: inotify triggers a read, and each read is complete; a periodic read every
//! `fileCheckFrequency` makes up for lost events. A file that is still being written is waited for,
//! but not for long. A file system that hangs delays this source only.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host_paths::Apart;
use ports::PortFuture;
use ports::pod_sources::{ManifestSource, SourceTelling};
use rustix::io::Errno;
use tokio::time::Instant;
use tracing::warn;

use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::listing::{self, Listing, Shape};
use crate::watches::{self, Change, Layout, Watches};

#[cfg(test)]
mod tests;

/// How long a read may take before the file system counts as hanging.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// How long a file may stay half-written before it is read as it is.
const WRITING: Duration = Duration::from_secs(1);

/// How long a new name may exist before anything is written to it: a link, or an empty file.
const APPEARED: Duration = Duration::from_millis(100);

/// The period of reads if nothing can be watched.
const UNWATCHED: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    period: Duration,
    watches: Option<Watches>,
    shape: Shape,
    linked: Vec<PathBuf>,
    apart: Apart,
    fingerprints: Fingerprints,
    told: Option<Fingerprint>,
    /// When the next read is due.
    look_at: Instant,
    pending: Pending,
    on_nothing_new: Hook,
}

/// Called after a read that found no change.
struct Hook(Box<dyn Fn() + Send>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Hook")
    }
}

impl FileSource {
    /// `period` is the configuration's `fileCheckFrequency`. Must be called within a tokio runtime.
    pub fn new(path: &Path, period: Duration) -> Self {
        let watches = Watches::new()
            .inspect_err(|error| {
                warn!(%error, path = %path.display(), "the manifest path cannot be watched; \
                     it is looked at every {UNWATCHED:?} instead");
            })
            .ok();
        Self {
            // A trailing slash would name the directory's inside, not its own name.
            path: path.components().collect(),
            period: if watches.is_some() { period } else { period.min(UNWATCHED) },
            watches,
            shape: Shape::Missing,
            linked: Vec::new(),
            apart: Apart::new("manifests", 2, LOOK_LIMIT),
            fingerprints: Fingerprints::default(),
            told: None,
            look_at: Instant::now(),
            pending: Pending::default(),
            on_nothing_new: Hook(Box::new(|| {})),
        }
    }

    /// Calls `hook` after each read that found no change: mostly the periodic ones.
    #[must_use]
    pub fn on_nothing_new(mut self, hook: impl Fn() + Send + 'static) -> Self {
        self.on_nothing_new = Hook(Box::new(hook));
        self
    }

    async fn tell(&mut self) -> SourceTelling {
        loop {
            self.wait_until_due().await;
            let telling = self.look().await;
            self.look_at = Instant::now() + self.period;
            let print = self.fingerprints.of(&telling);
            if self.told != Some(print) {
                self.told = Some(print);
                return telling;
            }
            drop(telling);
            (self.on_nothing_new.0)();
        }
    }

    async fn wait_until_due(&mut self) {
        while Instant::now() < self.look_at {
            let due = tokio::time::sleep_until(self.look_at);
            let Some(watches) = &mut self.watches else {
                due.await;
                return;
            };
            let changes = tokio::select! {
                () = due => return,
                changes = watches.changes() => changes,
            };
            match changes {
                Ok(changes) => self.note(changes),
                Err(error) => {
                    warn!(%error, path = %self.path.display(), "watching the manifest path failed");
                    self.watches = None;
                    self.period = self.period.min(UNWATCHED);
                    self.look_at = Instant::now();
                }
            }
        }
    }

    fn note(&mut self, changes: Vec<Change>) {
        let now = Instant::now();
        for change in changes {
            self.pending.note(change, now);
        }
        self.look_at = self.look_at.min(self.pending.due(now));
    }

    async fn look(&mut self) -> SourceTelling {
        self.pending = Pending::default();
        let place = Place {
            path: self.path.clone(),
            descriptor: self.watches.as_ref().map(Watches::descriptor),
            shape: self.shape,
            linked: self.linked.clone(),
        };
        let path = self.path.display();
        let look = match self.apart.run(move || place.look()).await {
            Ok(look) => look,
            Err(error) => return SourceTelling::Unreachable(format!("read {path}: {error}")),
        };
        if let Some(errno) = look.unwatched {
            warn!(error = %errno, %path, "the manifest path is not fully watched");
        }
        if let Some(watches) = &mut self.watches {
            watches.adopt(look.layout);
        }
        self.shape = look.listing.shape;
        self.linked = look.listing.linked;
        look.listing.telling
    }
}

/// The input of a read, to be moved to a thread of its own.
struct Place {
    path: PathBuf,
    descriptor: Option<Arc<OwnedFd>>,
    shape: Shape,
    linked: Vec<PathBuf>,
}

struct Look {
    listing: Listing,
    layout: Layout,
    unwatched: Option<Errno>,
}

impl Place {
    /// Watches are set before the read, so that changes during it are noticed; if the read shows
    /// that others are needed, it is repeated.
    fn look(mut self) -> Look {
        let mut tries = 3;
        loop {
            let (layout, laid) = match &self.descriptor {
                Some(descriptor) => watches::lay(descriptor, &self.path, self.shape, &self.linked),
                None => (Layout::default(), Ok(())),
            };
            let listing = listing::list(&self.path);
            tries -= 1;
            let settled = self.shape == listing.shape && self.linked == listing.linked;
            if settled || tries == 0 {
                return Look { listing, layout, unwatched: laid.err() };
            }
            self.shape = listing.shape;
            self.linked = listing.linked;
        }
    }
}

/// Changes that no read has covered yet.
#[derive(Debug, Default)]
struct Pending {
    since: Option<Instant>,
    /// Names that are still being written, and when to read them as they are.
    unfinished: HashMap<OsString, Instant>,
}

impl Pending {
    fn note(&mut self, change: Change, now: Instant) {
        self.since.get_or_insert(now);
        match change {
            Change::Look => {}
            Change::Finished(name) => drop(self.unfinished.remove(&name)),
            Change::Appeared(name) => drop(self.unfinished.insert(name, now + APPEARED)),
            Change::Written(name) => drop(self.unfinished.insert(name, now + WRITING)),
        }
    }

    /// At once if all files are complete; a slow writer is not waited for without end.
    fn due(&self, now: Instant) -> Instant {
        let longest = self.since.unwrap_or(now) + WRITING;
        self.unfinished.values().max().map_or(now, |until| longest.min(*until))
    }
}

impl ManifestSource for FileSource {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn next(&mut self) -> PortFuture<'_, SourceTelling> {
        Box::pin(self.tell())
    }
}
