//! The memories of pods on disk, one record each, and a copy of the last ones for workers that
//! restart. Of a pod that ends also the pod itself: its manifest is gone, and the next agent must
//! know how to end it.
//!
//! Rule: a write is complete when the record is durable. A failed write is reported as an error and
//! does not stop the pod: it is retried with the next change, and meanwhile the copy here serves.

use crate::status_store::StatusStore;
use document::diagnostic::Origin;
use pod_manifest::{ListPolicy, Strictness, decode};
use pod_model::pod::Pod;
use ports::pod_host::AgentRecords;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{error, warn};

#[cfg(test)]
mod tests;

const DIR: &str = "pods";
const ENDING_DIR: &str = "ending";
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct PodMemoryStore {
    records: Arc<dyn AgentRecords>,
    status_store: StatusStore,
    copies: Arc<Mutex<HashMap<String, SavedMemory>>>,
    /// Pods that end, as they were when last desired.
    ending: Arc<Mutex<HashMap<String, EndingPod>>>,
    /// By pod: the ended containers whose memory is on disk.
    recorded: Arc<Mutex<HashMap<String, BTreeSet<String>>>>,
}

/// The newest memory of a pod.
struct SavedMemory {
    content: Vec<u8>,
    /// Whether the record on disk is the same.
    is_durable: bool,
}

struct EndingPod {
    pod: Arc<Pod>,
    /// Whether the record on disk is the same.
    is_durable: bool,
}

impl PodMemoryStore {
    pub(crate) fn new(records: Arc<dyn AgentRecords>, status_store: StatusStore) -> Self {
        Self {
            records,
            status_store,
            copies: Arc::default(),
            ending: Arc::default(),
            recorded: Arc::default(),
        }
    }

    fn copies(&self) -> MutexGuard<'_, HashMap<String, SavedMemory>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the ended containers of a pod that may be removed without losing their exits.
    pub(crate) fn set_recorded<'a>(&self, uid: &str, ids: impl Iterator<Item = &'a str>) {
        let ids: BTreeSet<String> = ids.map(str::to_owned).collect();
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.is_empty() {
            recorded.remove(uid);
        } else if recorded.get(uid) != Some(&ids) {
            recorded.insert(uid.to_owned(), ids);
        }
    }

    /// Whether this container's exit is on disk.
    pub(crate) fn is_recorded(&self, uid: &str, id: &str) -> bool {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.get(uid).is_some_and(|ids| ids.contains(id))
    }

    /// Reads the records of earlier agents.
    pub(crate) async fn load(&self) {
        match self.records.load(DIR).await {
            Ok(loaded) => {
                for why in loaded.unreadable {
                    warn!(err = why, "Cannot read the saved state of a pod");
                }
                let remembered = |content| SavedMemory { content, is_durable: true };
                self.copies()
                    .extend(loaded.records.into_iter().map(|(uid, c)| (uid, remembered(c))));
            }
            Err(error) => error!(err = %error, "Cannot read the saved state of pods"),
        }
        self.load_ending().await;
    }

    async fn load_ending(&self) {
        let loaded = match self.records.load(ENDING_DIR).await {
            Ok(loaded) => loaded,
            Err(error) => {
                error!(err = %error, "Cannot read which pods are ending");
                return;
            }
        };
        for why in loaded.unreadable {
            warn!(err = why, "Cannot read a pod that is ending");
        }
        for (uid, content) in loaded.records {
            match decode_pod(&uid, &content) {
                Some(pod) => {
                    let ending = EndingPod { pod: Arc::new(pod), is_durable: true };
                    self.ending().insert(uid, ending);
                }
                None => warn!(pod_uid = uid, "What is written of a pod that ends is no pod"),
            }
        }
    }

    fn ending(&self) -> MutexGuard<'_, HashMap<String, EndingPod>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod that was ending when an earlier agent ended.
    pub(crate) fn ending_pod(&self, uid: &str) -> Option<Arc<Pod>> {
        self.ending().get(uid).map(|ending| ending.pod.clone())
    }

    /// Saves a pod that begins to end; without the record the next agent would end it as an orphan.
    pub(crate) async fn save_ending(&self, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.to_string();
        // A pod that was to end before and was desired again may have changed since.
        let is_written = |known: &EndingPod| known.is_durable && known.pod == *pod;
        if self.ending().get(&uid).is_some_and(is_written) {
            return;
        }
        let ending = EndingPod { pod: pod.clone(), is_durable: false };
        self.ending().insert(uid.clone(), ending);
        let write = self.records.save(ENDING_DIR, &uid, encode_pod(pod));
        match tokio::time::timeout(WRITE_TIMEOUT, write).await {
            Ok(Ok(())) => {
                if let Some(ending) = self.ending().get_mut(&uid) {
                    ending.is_durable = true;
                }
                crate::crash_points::reached("ending-saved");
            }
            Ok(Err(error)) => {
                error!(pod_uid = uid, err = %error, "Cannot save a pod that ends");
            }
            Err(_) => error!(pod_uid = uid, "A pod that ends was not saved in time"),
        }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Vec<u8>> {
        self.copies().get(uid).map(|copy| copy.content.clone())
    }

    /// Holds a memory that the pod's next write replaces on disk.
    pub(crate) fn remember(&self, uid: &str, content: Vec<u8>) {
        self.copies().insert(uid.to_owned(), SavedMemory { content, is_durable: false });
    }

    /// Discards the memory; the next write replaces it on disk.
    pub(crate) fn discard(&self, uid: &str) {
        self.copies().remove(uid);
    }

    /// Whether the record is durable now.
    pub(crate) async fn save(&self, uid: &str, content: Vec<u8>) -> bool {
        let was_durable = match self.copies().get(uid) {
            Some(copy) if copy.is_durable && copy.content == content => return true,
            copy => copy.is_none_or(|copy| copy.is_durable),
        };
        // Until it is written the copy serves a worker that restarts.
        let copy = SavedMemory { content: content.clone(), is_durable: false };
        self.copies().insert(uid.to_owned(), copy);
        let write = self.records.save(DIR, uid, content);
        let why = match tokio::time::timeout(WRITE_TIMEOUT, write).await {
            Ok(Ok(())) => {
                if let Some(copy) = self.copies().get_mut(uid) {
                    copy.is_durable = true;
                }
                self.status_store.record_written(DIR, uid);
                crate::crash_points::reached("memory-saved");
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not written within {WRITE_TIMEOUT:?}"),
        };
        self.status_store.record_write_failed(DIR, uid, &why);
        // Logged once: it is retried again and again.
        if was_durable {
            error!(
                pod_uid = uid,
                err = why,
                "Cannot save the state of a pod; it would be lost if the agent ended now"
            );
        }
        false
    }

    pub(crate) async fn forget(&self, uid: &str) {
        self.copies().remove(uid);
        self.set_recorded(uid, std::iter::empty());
        self.status_store.record_written(DIR, uid);
        if let Err(error) = self.records.remove(DIR, uid).await {
            warn!(pod_uid = uid, err = %error, "Cannot remove what was remembered of a pod");
        }
        self.remove_ending(uid).await;
    }

    /// Call for a pod that is not to end, or that is completely removed.
    pub(crate) async fn remove_ending(&self, uid: &str) {
        let was_ending = self.ending().remove(uid).is_some();
        if was_ending && let Err(error) = self.records.remove(ENDING_DIR, uid).await {
            warn!(pod_uid = uid, err = %error, "Cannot remove the record of a pod that has ended");
        }
    }

    /// UIDs with records that are not among `uids`.
    pub(crate) fn uids_except(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let ending: Vec<String> = self.ending().keys().cloned().collect();
        let all: BTreeSet<String> = self.copies().keys().cloned().chain(ending).collect();
        all.into_iter().filter(|uid| !uids.contains(uid)).collect()
    }
}

/// As a manifest, which can be read without anything else.
fn encode_pod(pod: &Pod) -> Vec<u8> {
    let mut object = serde_json::to_value(pod).unwrap_or_default();
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), "Pod".into());
    }
    object.to_string().into_bytes()
}

fn decode_pod(uid: &str, content: &[u8]) -> Option<Pod> {
    let decoded = decode(content, &Origin::Default, Strictness::Lenient, ListPolicy::OnePod);
    let pod = decoded.pods.into_iter().next()?.pod;
    (*pod.metadata.uid == *uid).then_some(pod)
}
