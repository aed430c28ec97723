//! The UIDs of static pods: assigned once, saved on disk, adopted from running pods.
//!
//! Rules: a UID in the manifest is used; a saved one is used while the manifest's bytes or the pod
//! in it are unchanged (so neither a comment nor a new version of this program makes another pod of
//! it); otherwise the UID is adopted from a live sandbox of the same name whose containers have the
//! hashes that this pod's would have, which is how pods of the reference kubelet continue; last, a
//! new one is made from the name, the manifest and the pod in it. The record must be on disk before
//! the UID is used. Reads no clock: the time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_manifest::static_pod::{CONFIG_SOURCE_ANNOTATION, SourceKind, fnv128a, identify};
use pod_model::pod::{Container, Pod};
use ports::ApiTime;
use ports::runtime_objects::{RuntimePods, SandboxRecord};
use serde::{Deserialize, Serialize};

use crate::manifests::PodCandidate;
use crate::notice::Notice;
use crate::record::{RecordChange, record_name};

#[cfg(test)]
mod tests;

/// The directory of the records of UIDs.
pub const UIDS_DIR: &str = "uids";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodIdentityRecord {
    version: u32,
    full_name: String,
    uid: String,
    manifest: String,
    bytes_hash: String,
    pod_hash: String,
    /// When this pod was first seen, as in the annotation.
    seen: String,
}

/// The context in which a pod is assigned its UID.
pub struct IdentityContext<'a> {
    pub now: ApiTime,
    pub running: &'a RuntimePods,
    /// The container hash of the reference, as its annotation writes it.
    pub container_hash: &'a (dyn Fn(&Container) -> String + Sync),
}

/// A pod with its UID.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentifiedPod {
    pub pod: Arc<Pod>,
    pub manifest: String,
    pub source: SourceKind,
    /// To be saved before the pod is started.
    pub record: Option<RecordChange>,
    /// The UID is that of a pod that already runs.
    pub adopted: bool,
}

/// The assigned UIDs.
#[derive(Debug, Default)]
pub struct PodIdentities {
    known: BTreeMap<String, PodIdentityRecord>,
}

impl PodIdentities {
    /// Loads the UIDs that earlier agents assigned. Returns notices about records that cannot be
    /// read.
    pub fn restore(&mut self, records: &[(String, Vec<u8>)]) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (name, content) in records {
            match serde_json::from_slice::<PodIdentityRecord>(content) {
                Ok(pod_identity) if pod_identity.version == VERSION => {
                    self.known.insert(pod_identity.full_name.clone(), pod_identity);
                }
                _ => notices.push(Notice::Warning(format!(
                    "the saved UID {UIDS_DIR}/{name} cannot be read; its pod may get another one"
                ))),
            }
        }
        notices
    }

    /// Full name and manifest of every pod that has a UID.
    pub fn owners(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known.values().map(|each| (each.full_name.as_str(), each.manifest.as_str()))
    }

    /// Whether this offer may adopt the UID of a running pod, so that the runtime's state must be
    /// known first. A pod of ours whose manifest now defines another pod is not adopted, however
    /// alike its containers are.
    pub fn may_adopt_running_uid(&self, candidate: &PodCandidate) -> bool {
        candidate.pod.metadata.uid.is_empty()
            && !self.known.contains_key(&candidate.pod.full_name())
    }

    /// The pod with its earlier UID; none where it would get a new one.
    pub fn recorded(&self, candidate: &PodCandidate) -> Option<Arc<Pod>> {
        let known = self.known.get(&candidate.pod.full_name())?;
        let is_its_own = match &*candidate.pod.metadata.uid {
            "" => is_same(known, candidate),
            stated => stated == known.uid,
        };
        let is_held = is_its_own && known.manifest == candidate.manifest;
        is_held.then(|| under_uid(candidate, &known.uid, &known.seen))
    }

    /// Assigns the offered pod its UID.
    pub fn identify(
        &mut self,
        candidate: &PodCandidate,
        at: &IdentityContext<'_>,
    ) -> IdentifiedPod {
        let full_name = candidate.pod.full_name();
        let recorded = self.known.get(&full_name).filter(|each| is_same(each, candidate));
        let stated = Some(&*candidate.pod.metadata.uid).filter(|uid| !uid.is_empty());
        let lent = self
            .may_adopt_running_uid(candidate)
            .then(|| adoptable_sandbox(&candidate.pod, at))
            .flatten();
        let lent = lent.map(|sandbox| sandbox.uid.clone());
        let adopted = lent.is_some();
        let uid = stated
            .map(str::to_owned)
            .or_else(|| recorded.map(|each| each.uid.clone()))
            .or(lent)
            .unwrap_or_else(|| new_uid(&full_name, candidate));
        let seen = recorded.map_or_else(|| at.now.to_micros_text(), |each| each.seen.clone());
        let pod_identity = PodIdentityRecord {
            version: VERSION,
            full_name: full_name.clone(),
            uid: uid.clone(),
            manifest: candidate.manifest.clone(),
            bytes_hash: format!("{:032x}", candidate.bytes_hash),
            pod_hash: format!("{:032x}", candidate.pod_hash),
            seen: seen.clone(),
        };
        let record = (self.known.get(&full_name) != Some(&pod_identity)).then(|| RecordChange {
            dir: UIDS_DIR,
            name: record_name(&full_name),
            content: serde_json::to_vec(&pod_identity).ok(),
        });
        self.known.insert(full_name, pod_identity);
        IdentifiedPod {
            pod: under_uid(candidate, &uid, &seen),
            manifest: candidate.manifest.clone(),
            source: candidate.source,
            record,
            adopted,
        }
    }

    /// Forgets every UID but those of these full names. Call only once every source has reported.
    pub fn retain_names(&mut self, full_names: &BTreeSet<String>) -> Vec<RecordChange> {
        let mut gone = Vec::new();
        self.known.retain(|full_name, _| {
            let stays = full_names.contains(full_name);
            if !stays {
                let name = record_name(full_name);
                gone.push(RecordChange { dir: UIDS_DIR, name, content: None });
            }
            stays
        });
        gone
    }
}

fn under_uid(candidate: &PodCandidate, uid: &str, seen: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(&candidate.pod);
    identify(&mut pod, uid, seen);
    Arc::new(pod)
}

fn is_same(pod_identity: &PodIdentityRecord, candidate: &PodCandidate) -> bool {
    pod_identity.bytes_hash == format!("{:032x}", candidate.bytes_hash)
        || pod_identity.pod_hash == format!("{:032x}", candidate.pod_hash)
}

/// In the format of the reference's static UIDs.
///
/// The same for the same pod of the same manifest: one that is taken away and put back is the same
/// pod, whose containers go on counting their restarts.
///
/// upstream: pkg/kubelet/config/common.go (applyDefaults)
fn new_uid(full_name: &str, candidate: &PodCandidate) -> String {
    let words = format!("{full_name} {} {:032x}", candidate.manifest, candidate.pod_hash);
    format!("{:032x}", fnv128a(words.as_bytes()))
}

/// The newest sandbox whose static pod is this one.
fn adoptable_sandbox<'a>(pod: &Pod, at: &IdentityContext<'a>) -> Option<&'a SandboxRecord> {
    let is_static = |sandbox: &SandboxRecord| {
        let source = sandbox.annotations.get(CONFIG_SOURCE_ANNOTATION);
        source.is_some_and(|source| source != "api")
    };
    let alike = |sandbox: &&SandboxRecord| {
        sandbox.ready
            && *sandbox.name == *pod.metadata.name
            && *sandbox.namespace == *pod.metadata.namespace
            && !sandbox.uid.is_empty()
            && is_static(sandbox)
            && has_same_containers(pod, sandbox, at)
    };
    at.running.sandboxes.iter().filter(alike).max_by_key(|sandbox| sandbox.created_at)
}

/// Every container that the sandbox has is one of the pod's with the same hash, and there is one. It
/// need not run just now: it may wait out a back-off, or be between two init containers.
fn has_same_containers(pod: &Pod, sandbox: &SandboxRecord, at: &IdentityContext<'_>) -> bool {
    const HASH: &str = "io.kubernetes.container.hash";
    let mut is_known = false;
    for record in at.running.containers.iter().filter(|each| each.sandbox_id == sandbox.id) {
        let mut of_pod = pod.spec.all_containers().map(|(_, _, container)| container);
        let Some(container) = of_pod.find(|each| *each.name == *record.name) else { return false };
        if record.annotations.get(HASH) != Some(&(at.container_hash)(container)) {
            return false;
        }
        is_known = true;
    }
    is_known
}
