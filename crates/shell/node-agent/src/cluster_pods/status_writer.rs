//! Writes the statuses of pods to the API server, and deletes the pods that are gone from here.
//!
//! Rules: one request at a time for each pod, a few for all; while the API server does not answer,
//! one for all. A status that is refused delays only its pod and is tried again with growing delays;
//! the pod's explanation says so. What differs is decided by `pod_lifecycle::api_status`. A status
//! that the API server stores in another form than it was written is not written again at once.

use super::{ApiPodStore, REQUEST_TIMEOUT, StatusReports};
use crate::back_off::ExponentialBackOff;
use crate::keyed_tasks::KeyedTasks;
use crate::status_store::StatusStore;
use pod_desired::{ApiPods, config_hash};
use pod_lifecycle::api_status::{merged, status_patch};
use pod_model::pod::Pod;
use pod_model::pod::status::PodStatus;
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind, StoredObject};
use ports::{ApiPod, ClusterApi, ClusterApiError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// Requests in flight at once.
const MAX_IN_FLIGHT: usize = 8;
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// For a request that the API server refuses.
const LONGEST_REFUSED_RETRY: Duration = Duration::from_secs(300);
/// Before a status that the API server changed is written again.
const RECONCILE_DELAY: Duration = Duration::from_secs(10);

/// A pod of the API server as it was when a request was decided.
#[derive(Clone)]
struct WriteTarget {
    uid: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
    status: Arc<PodStatus>,
    is_deleted: bool,
    resource_version: Box<str>,
}

impl WriteTarget {
    fn path(&self) -> ObjectPath {
        ObjectPath::pod(&self.namespace, &self.name)
    }
}

enum StatusRequest {
    Patch { version: u64, body: Value },
    Delete,
}

/// How a request ended.
enum RequestEnd {
    Patched { version: u64, stored: StoredObject },
    Deleted,
    Failed(ClusterApiError),
}

/// What is remembered of a pod between requests.
struct PodWrites {
    /// The report and the version in the API server that were compared last and need no request.
    compared: Option<(u64, bool, Box<str>)>,
    /// The report that was written last, and when.
    written: Option<(u64, Instant)>,
    retry: ExponentialBackOff,
    retry_at: Option<Instant>,
    has_error: bool,
}

impl Default for PodWrites {
    fn default() -> Self {
        Self {
            compared: None,
            written: None,
            retry: ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY),
            retry_at: None,
            has_error: false,
        }
    }
}

struct StatusWriter {
    api: Arc<dyn ClusterApi>,
    store: ApiPodStore,
    reports: StatusReports,
    status_store: StatusStore,
    writes: BTreeMap<String, PodWrites>,
    requests: KeyedTasks<String, RequestEnd>,
    /// UIDs to look at.
    due: BTreeSet<String>,
    is_unreachable: bool,
}

/// Writes for ever.
pub(super) async fn write_statuses(
    api: Arc<dyn ClusterApi>,
    store: ApiPodStore,
    reports: StatusReports,
    status_store: StatusStore,
) {
    let mut api_pods = store.subscribe();
    let due = reports.uids().into_iter().collect();
    let mut writer = StatusWriter {
        api,
        store,
        reports: reports.clone(),
        status_store,
        writes: BTreeMap::new(),
        requests: KeyedTasks::default(),
        due,
        is_unreachable: false,
    };
    loop {
        writer.begin_requests();
        let retry_at = writer.next_retry();
        tokio::select! {
            changed = reports.changed() => writer.due.extend(changed),
            Ok(()) = api_pods.changed() => {
                api_pods.borrow_and_update();
                writer.due.extend(reports.uids());
            }
            (uid, end) = writer.requests.next() => {
                writer.due.insert(uid.clone());
                match end {
                    Ok(end) => writer.on_request_ended(&uid, end),
                    Err(panicked) => {
                        error!(pod_uid = uid, panic = panicked.0, "Writing a status panicked");
                        writer.delay(&uid, LONGEST_RETRY);
                    }
                }
            }
            () = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                writer.retry_due();
            }
        }
    }
}

impl StatusWriter {
    fn begin_requests(&mut self) {
        let limit = if self.is_unreachable { 1 } else { MAX_IN_FLIGHT };
        let api_pods = self.store.snapshot();
        let mut left = BTreeSet::new();
        for uid in std::mem::take(&mut self.due) {
            let is_delayed = self.writes.get(&uid).is_some_and(|known| known.retry_at.is_some());
            if is_delayed || self.requests.contains(&uid) {
                continue;
            }
            if self.requests.len() >= limit {
                left.insert(uid);
                continue;
            }
            self.begin_request(uid, &api_pods);
        }
        self.due = left;
    }

    fn begin_request(&mut self, uid: String, api_pods: &ApiPods) {
        let Some(report) = self.reports.get(&uid) else {
            self.writes.remove(&uid);
            return;
        };
        let Some(target) = target(&report.pod, api_pods) else {
            // There is no object to write to, and for a pod that the API server does not have there
            // never will be.
            if api_pods.is_listed {
                self.reports.set_written(&uid, report.version);
                self.clear_error(&uid);
            }
            return;
        };
        let compared = (report.version, report.is_finished, target.resource_version.clone());
        let writes = self.writes.entry(uid.clone()).or_default();
        if writes.compared.as_ref() == Some(&compared) {
            return;
        }
        let desired = merged(&target.status, &report.status, report.may_run);
        let request = match status_patch(&target.uid, &target.status, &desired) {
            Some(body) => match writes.written {
                Some((version, at)) if version == report.version => {
                    let until = at + RECONCILE_DELAY;
                    if until > Instant::now() {
                        writes.retry_at = Some(until);
                        return;
                    }
                    StatusRequest::Patch { version, body }
                }
                _ => StatusRequest::Patch { version: report.version, body },
            },
            None => {
                writes.compared = Some(compared);
                self.reports.set_written(&uid, report.version);
                let is_over = report.is_finished && target.status.is_terminal();
                if !(is_over && target.is_deleted) || report.pod.is_static() {
                    return;
                }
                StatusRequest::Delete
            }
        };
        let api = self.api.clone();
        let name = format!("status of pod {}", report.pod.full_name());
        self.requests.start(uid, name, perform(api, target, request));
    }

    fn on_request_ended(&mut self, uid: &str, end: RequestEnd) {
        let error = match end {
            RequestEnd::Patched { version, stored } => {
                crate::crash_points::reached("status-written");
                match serde_json::from_slice::<ApiPod>(&stored.json) {
                    Ok(pod) => self.store.apply_answer(pod),
                    Err(error) => error!(err = %error, "The answer to a status cannot be read"),
                }
                let writes = self.writes.entry(uid.to_owned()).or_default();
                writes.written = Some((version, Instant::now()));
                self.reports.set_written(uid, version);
                self.succeeded(uid);
                return;
            }
            RequestEnd::Deleted => {
                crate::crash_points::reached("pod-deleted");
                info!(pod_uid = uid, "Pod fully terminated and removed from the API server");
                self.succeeded(uid);
                // Gone from the feed soon; until then nothing more is to be done.
                self.delay(uid, RECONCILE_DELAY);
                return;
            }
            RequestEnd::Failed(error) => error,
        };
        match &error {
            // The pod is gone, or it is another one: the feed brings that.
            ClusterApiError::NotFound { .. } | ClusterApiError::Conflict { .. } => {
                self.is_unreachable = false;
                self.delay(uid, FIRST_RETRY);
            }
            ClusterApiError::Refused { .. } | ClusterApiError::TooLarge { .. } => {
                self.is_unreachable = false;
                warn!(pod_uid = uid, err = %error, "Failed to update status for pod");
                self.record_error(uid, &error);
                self.retry_later(uid, LONGEST_REFUSED_RETRY);
            }
            _ => {
                if !self.is_unreachable {
                    warn!(pod_uid = uid, err = %error, "Failed to update status for pod");
                }
                self.is_unreachable = true;
                self.record_error(uid, &error);
                self.retry_later(uid, LONGEST_RETRY);
            }
        }
    }

    fn succeeded(&mut self, uid: &str) {
        if std::mem::take(&mut self.is_unreachable) {
            // What waited for the API server goes on now.
            let now = Instant::now();
            for writes in self.writes.values_mut() {
                writes.retry_at = writes.retry_at.map(|_| now);
            }
        }
        self.clear_error(uid);
    }

    fn clear_error(&mut self, uid: &str) {
        let Some(writes) = self.writes.get_mut(uid) else { return };
        writes.retry.reset();
        if std::mem::take(&mut writes.has_error) {
            self.status_store.set_write_error(uid, None);
        }
    }

    fn record_error(&mut self, uid: &str, error: &ClusterApiError) {
        self.writes.entry(uid.to_owned()).or_default().has_error = true;
        self.status_store.set_write_error(uid, Some(error.to_string()));
    }

    fn delay(&mut self, uid: &str, delay: Duration) {
        self.writes.entry(uid.to_owned()).or_default().retry_at = Some(Instant::now() + delay);
    }

    fn retry_later(&mut self, uid: &str, longest: Duration) {
        let writes = self.writes.entry(uid.to_owned()).or_default();
        let mut retry = writes.retry.clone();
        let pause = retry.pause().min(longest);
        writes.retry = retry;
        writes.retry_at = Some(Instant::now() + pause);
    }

    fn next_retry(&self) -> Option<Instant> {
        self.writes.values().filter_map(|writes| writes.retry_at).min()
    }

    fn retry_due(&mut self) {
        let now = Instant::now();
        for (uid, writes) in &mut self.writes {
            if writes.retry_at.is_some_and(|at| at <= now) {
                writes.retry_at = None;
                self.due.insert(uid.clone());
            }
        }
    }
}

/// The object that shows this pod: itself, or the mirror of a static pod.
fn target(pod: &Pod, api_pods: &ApiPods) -> Option<WriteTarget> {
    let meta = &pod.metadata;
    if pod.is_static() {
        let mirror = api_pods.mirror_of(&meta.namespace, &meta.name)?;
        return (mirror.hash == config_hash(pod) && !mirror.is_deleted).then(|| WriteTarget {
            uid: mirror.uid.clone(),
            namespace: mirror.namespace.clone(),
            name: mirror.name.clone(),
            status: mirror.status.clone(),
            is_deleted: false,
            resource_version: mirror.resource_version.clone(),
        });
    }
    let entry = api_pods.pods.get(&meta.uid)?;
    Some(WriteTarget {
        uid: meta.uid.clone(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        status: entry.status.clone(),
        is_deleted: entry.pod.metadata.deletion_timestamp.is_some(),
        resource_version: entry.resource_version.clone(),
    })
}

async fn perform(
    api: Arc<dyn ClusterApi>,
    target: WriteTarget,
    request: StatusRequest,
) -> RequestEnd {
    let path = target.path();
    let call = async {
        match request {
            StatusRequest::Patch { version, body } => {
                let patch = Patch {
                    kind: PatchKind::StrategicMerge,
                    subresource: Some("status".into()),
                    body: body.to_string().into_bytes(),
                };
                let stored = api.patch(&path, patch).await?;
                Ok(RequestEnd::Patched { version, stored })
            }
            StatusRequest::Delete => {
                let deletion = Deletion {
                    uid: Some(target.uid.to_string()),
                    resource_version: None,
                    grace_seconds: Some(0),
                };
                match api.delete(&path, deletion).await {
                    Ok(()) | Err(ClusterApiError::NotFound { .. }) => Ok(RequestEnd::Deleted),
                    Err(error) => Err(error),
                }
            }
        }
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => RequestEnd::Failed(error),
        Err(_) => RequestEnd::Failed(ClusterApiError::NoResponse {
            request: format!("status of pod {}/{}", target.namespace, target.name),
            cause: format!("no answer within {REQUEST_TIMEOUT:?}"),
        }),
    }
}
