//! The statuses that pod workers want written to the API server, and which were.
//!
//! Rule: only the newest status of a pod counts; a status that replaces one that was not written yet
//! costs no request. Each change has a version; a worker learns the version that was written, and
//! removes a pod's last records only after that.

use pod_model::pod::Pod;
use pod_model::pod::status::PodStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// Cheap to clone; all clones are one value.
#[derive(Clone, Default)]
pub(crate) struct StatusReports {
    shared: Arc<StatusReportsInner>,
}

#[derive(Default)]
struct StatusReportsInner {
    reports: Mutex<Reports>,
    changed: Notify,
}

#[derive(Default)]
struct Reports {
    by_uid: BTreeMap<String, StatusReport>,
    changed: BTreeSet<String>,
}

/// The newest status of a pod.
#[derive(Clone)]
pub(super) struct StatusReport {
    pub(super) pod: Arc<Pod>,
    pub(super) status: Arc<PodStatus>,
    /// A container of the pod may still run.
    pub(super) may_run: bool,
    /// Nothing of the pod is left on this node.
    pub(super) is_finished: bool,
    pub(super) version: u64,
    written: Arc<watch::Sender<u64>>,
}

impl StatusReports {
    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.shared.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a status; returns its version.
    pub(crate) fn report(&self, pod: &Arc<Pod>, status: &PodStatus, may_run: bool) -> u64 {
        let uid = &*pod.metadata.uid;
        let mut reports = self.reports();
        let version = match reports.by_uid.get_mut(uid) {
            Some(known) if known.may_run == may_run && *known.status == *status => {
                known.pod = pod.clone();
                return known.version;
            }
            Some(known) => {
                known.pod = pod.clone();
                known.status = Arc::new(status.clone());
                known.may_run = may_run;
                known.version += 1;
                known.version
            }
            None => {
                let report = StatusReport {
                    pod: pod.clone(),
                    status: Arc::new(status.clone()),
                    may_run,
                    is_finished: false,
                    version: 1,
                    written: Arc::new(watch::Sender::new(0)),
                };
                reports.by_uid.insert(uid.to_owned(), report);
                1
            }
        };
        reports.changed.insert(uid.to_owned());
        drop(reports);
        self.shared.changed.notify_one();
        version
    }

    /// Nothing of the pod is left on this node: it may be deleted in the API server.
    pub(crate) fn finish(&self, uid: &str) {
        let mut reports = self.reports();
        if let Some(report) = reports.by_uid.get_mut(uid) {
            report.is_finished = true;
            reports.changed.insert(uid.to_owned());
        }
        drop(reports);
        self.shared.changed.notify_one();
    }

    /// The pod is gone here and in the API server.
    pub(crate) fn forget(&self, uid: &str) {
        self.reports().by_uid.remove(uid);
    }

    /// The version that was written last. Before the first report of a pod: a version that never
    /// comes.
    pub(crate) fn written(&self, uid: &str) -> Option<watch::Receiver<u64>> {
        self.reports().by_uid.get(uid).map(|report| report.written.subscribe())
    }

    pub(super) fn set_written(&self, uid: &str, version: u64) {
        if let Some(report) = self.reports().by_uid.get(uid) {
            report.written.send_if_modified(|known| {
                let is_later = version > *known;
                *known = version.max(*known);
                is_later
            });
        }
    }

    pub(super) fn get(&self, uid: &str) -> Option<StatusReport> {
        self.reports().by_uid.get(uid).cloned()
    }

    /// All UIDs with a report.
    pub(super) fn uids(&self) -> Vec<String> {
        self.reports().by_uid.keys().cloned().collect()
    }

    /// Waits for changed reports; returns their UIDs. Cancel-safe.
    pub(super) async fn changed(&self) -> BTreeSet<String> {
        loop {
            let changed = std::mem::take(&mut self.reports().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.shared.changed.notified().await;
        }
    }
}
