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

use host_paths::BlockingPool;
use ports::PortFuture;
use ports::pod_sources::{ManifestSource, SourceKind, SourceSnapshot};
use rustix::io::Errno;
use tokio::time::Instant;
use tracing::warn;

use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::listing::{self, ManifestListing, PathKind};
use crate::watches::{self, FileChange, WatchLayout, Watches};

#[cfg(test)]
mod tests;

/// How long a read may take before the file system counts as hanging.
const SCAN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a file may stay half-written before it is read as it is.
const MAX_WRITE_WAIT: Duration = Duration::from_secs(1);

/// How long a new name may exist before anything is written to it: a link, or an empty file.
const MAX_CREATE_WAIT: Duration = Duration::from_millis(100);

/// The period of reads if nothing can be watched.
const UNWATCHED_SCAN_PERIOD: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    period: Duration,
    watches: Option<Watches>,
    path_kind: PathKind,
    symlink_targets: Vec<PathBuf>,
    blocking_pool: BlockingPool,
    fingerprints: Fingerprints,
    last_reported: Option<Fingerprint>,
    /// When the next read is due.
    scan_at: Instant,
    pending: PendingChanges,
    on_unchanged: UnchangedHook,
}

/// Called after a read that found no change.
struct UnchangedHook(Box<dyn Fn() + Send>);

impl std::fmt::Debug for UnchangedHook {
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
                     it is looked at every {UNWATCHED_SCAN_PERIOD:?} instead");
            })
            .ok();
        Self {
            // A trailing slash would name the directory's inside, not its own name.
            path: path.components().collect(),
            period: if watches.is_some() { period } else { period.min(UNWATCHED_SCAN_PERIOD) },
            watches,
            path_kind: PathKind::Missing,
            symlink_targets: Vec::new(),
            blocking_pool: BlockingPool::new("manifests", 2, SCAN_TIMEOUT),
            fingerprints: Fingerprints::default(),
            last_reported: None,
            scan_at: Instant::now(),
            pending: PendingChanges::default(),
            on_unchanged: UnchangedHook(Box::new(|| {})),
        }
    }

    /// Calls `hook` after each read that found no change: mostly the periodic ones.
    #[must_use]
    pub fn on_unchanged(mut self, hook: impl Fn() + Send + 'static) -> Self {
        self.on_unchanged = UnchangedHook(Box::new(hook));
        self
    }

    async fn next_snapshot(&mut self) -> SourceSnapshot {
        loop {
            self.wait_until_due().await;
            let snapshot = self.scan().await;
            self.scan_at = Instant::now() + self.period;
            let fingerprint = self.fingerprints.of(&snapshot);
            if self.last_reported != Some(fingerprint) {
                self.last_reported = Some(fingerprint);
                return snapshot;
            }
            drop(snapshot);
            (self.on_unchanged.0)();
        }
    }

    async fn wait_until_due(&mut self) {
        while Instant::now() < self.scan_at {
            let due = tokio::time::sleep_until(self.scan_at);
            let Some(watches) = &mut self.watches else {
                due.await;
                return;
            };
            let changes = tokio::select! {
                () = due => return,
                changes = watches.changes() => changes,
            };
            match changes {
                Ok(changes) => self.record(changes),
                Err(error) => {
                    warn!(%error, path = %self.path.display(), "watching the manifest path failed");
                    self.watches = None;
                    self.period = self.period.min(UNWATCHED_SCAN_PERIOD);
                    self.scan_at = Instant::now();
                }
            }
        }
    }

    fn record(&mut self, changes: Vec<FileChange>) {
        let now = Instant::now();
        for change in changes {
            self.pending.record(change, now);
        }
        self.scan_at = self.scan_at.min(self.pending.due(now));
    }

    async fn scan(&mut self) -> SourceSnapshot {
        self.pending = PendingChanges::default();
        let scan_input = ScanInput {
            path: self.path.clone(),
            descriptor: self.watches.as_ref().map(Watches::descriptor),
            path_kind: self.path_kind,
            symlink_targets: self.symlink_targets.clone(),
        };
        let path = self.path.display();
        let scan = match self.blocking_pool.run(move || scan_input.scan()).await {
            Ok(scan) => scan,
            Err(error) => return SourceSnapshot::Unreachable(format!("read {path}: {error}")),
        };
        if let Some(errno) = scan.unwatched {
            warn!(error = %errno, %path, "the manifest path is not fully watched");
        }
        if let Some(watches) = &mut self.watches {
            watches.adopt(scan.layout);
        }
        self.path_kind = scan.listing.path_kind;
        self.symlink_targets = scan.listing.symlink_targets;
        scan.listing.snapshot
    }
}

/// The input of a read, to be moved to a thread of its own.
struct ScanInput {
    path: PathBuf,
    descriptor: Option<Arc<OwnedFd>>,
    path_kind: PathKind,
    symlink_targets: Vec<PathBuf>,
}

struct ScanResult {
    listing: ManifestListing,
    layout: WatchLayout,
    unwatched: Option<Errno>,
}

impl ScanInput {
    /// Watches are set before the read, so that changes during it are noticed; if the read shows
    /// that others are needed, it is repeated.
    fn scan(mut self) -> ScanResult {
        let mut tries = 3;
        loop {
            let (layout, watch_result) = match &self.descriptor {
                Some(descriptor) => watches::add_watches(
                    descriptor,
                    &self.path,
                    self.path_kind,
                    &self.symlink_targets,
                ),
                None => (WatchLayout::default(), Ok(())),
            };
            let listing = listing::list(&self.path);
            tries -= 1;
            let settled = self.path_kind == listing.path_kind
                && self.symlink_targets == listing.symlink_targets;
            if settled || tries == 0 {
                return ScanResult { listing, layout, unwatched: watch_result.err() };
            }
            self.path_kind = listing.path_kind;
            self.symlink_targets = listing.symlink_targets;
        }
    }
}

/// Changes that no read has covered yet.
#[derive(Debug, Default)]
struct PendingChanges {
    since: Option<Instant>,
    /// Names that are still being written, and when to read them as they are.
    unfinished: HashMap<OsString, Instant>,
}

impl PendingChanges {
    fn record(&mut self, change: FileChange, now: Instant) {
        self.since.get_or_insert(now);
        match change {
            FileChange::Rescan => {}
            FileChange::Finished(name) => drop(self.unfinished.remove(&name)),
            FileChange::Appeared(name) => drop(self.unfinished.insert(name, now + MAX_CREATE_WAIT)),
            FileChange::Written(name) => drop(self.unfinished.insert(name, now + MAX_WRITE_WAIT)),
        }
    }

    /// At once if all files are complete; a slow writer is not waited for without end.
    fn due(&self, now: Instant) -> Instant {
        let longest = self.since.unwrap_or(now) + MAX_WRITE_WAIT;
        self.unfinished.values().max().map_or(now, |until| longest.min(*until))
    }
}

impl ManifestSource for FileSource {
    fn kind(&self) -> SourceKind {
        SourceKind::File
    }

    fn next(&mut self) -> PortFuture<'_, SourceSnapshot> {
        Box::pin(self.next_snapshot())
    }
}
