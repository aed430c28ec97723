//! The UIDs of static pods: assigned once, saved on disk, adopted from running pods.
//!
//! Rules: a UID in the manifest is used; a saved one is used while the manifest's bytes or the pod
//! in it are unchanged (so neither a comment nor a new version of this program makes another pod of
//! it); otherwise the UID is adopted from a live sandbox of the same name whose containers have the
//! hashes that this pod's would have, which is how pods of the reference kubelet continue; last, a
//! new one is generated. The record must be on disk before the UID is used. Reads no clock: the
//! time is passed in, and makes a new UID differ from every earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_manifest::static_pod::{CONFIG_SOURCE_ANNOTATION, fnv128a, identify};
use pod_model::pod::{Container, Pod};
use ports::ApiTime;
use ports::runtime_objects::{RuntimePods, SandboxRecord};
use serde::{Deserialize, Serialize};

use crate::manifests::Offer;
use crate::notice::Notice;
use crate::record::{Record, record_name};

#[cfg(test)]
mod tests;

/// The directory of the records of UIDs.
pub const UIDS_FOLDER: &str = "uids";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
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
pub struct WhenAndWhere<'a> {
    pub now: ApiTime,
    pub running: &'a RuntimePods,
    /// The container hash of the reference, as its annotation writes it.
    pub container_hash: &'a (dyn Fn(&Container) -> String + Sync),
}

/// A pod with its UID.
#[derive(Debug, Clone, PartialEq)]
pub struct Identified {
    pub pod: Arc<Pod>,
    pub manifest: String,
    pub source: &'static str,
    /// To be saved before the pod is started.
    pub record: Option<Record>,
    /// The UID is that of a pod that already runs.
    pub adopted: bool,
}

/// The assigned UIDs.
#[derive(Debug, Default)]
pub struct Identities {
    known: BTreeMap<String, Identity>,
}

impl Identities {
    /// Loads the UIDs that earlier agents assigned. Returns notices about records that cannot be
    /// read.
    pub fn recall(&mut self, records: &[(String, Vec<u8>)]) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (name, content) in records {
            match serde_json::from_slice::<Identity>(content) {
                Ok(identity) if identity.version == VERSION => {
                    self.known.insert(identity.full_name.clone(), identity);
                }
                _ => notices.push(Notice::Warning(format!(
                    "the saved UID {UIDS_FOLDER}/{name} cannot be read; its pod may get another one"
                ))),
            }
        }
        notices
    }

    /// Full name and manifest of every pod that has a UID.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known.values().map(|each| (each.full_name.as_str(), each.manifest.as_str()))
    }

    /// Whether this offer may adopt the UID of a running pod, so that the runtime's state must be
    /// known first. A pod of ours whose manifest now defines another pod is not adopted, however
    /// alike its containers are.
    pub fn may_borrow(&self, offer: &Offer) -> bool {
        offer.pod.metadata.uid.is_empty() && !self.known.contains_key(&offer.pod.full_name())
    }

    /// The pod with its earlier UID; none where it would get a new one.
    pub fn remembered(&self, offer: &Offer) -> Option<Arc<Pod>> {
        let known = self.known.get(&offer.pod.full_name())?;
        let is_its_own = match &*offer.pod.metadata.uid {
            "" => is_same(known, offer),
            stated => stated == known.uid,
        };
        let is_held = is_its_own && known.manifest == offer.manifest;
        is_held.then(|| under_uid(offer, &known.uid, &known.seen))
    }

    /// Assigns the offered pod its UID.
    pub fn identify(&mut self, offer: &Offer, at: &WhenAndWhere<'_>) -> Identified {
        let full_name = offer.pod.full_name();
        let remembered = self.known.get(&full_name).filter(|each| is_same(each, offer));
        let stated = Some(&*offer.pod.metadata.uid).filter(|uid| !uid.is_empty());
        let lent = self.may_borrow(offer).then(|| lender(&offer.pod, at)).flatten();
        let lent = lent.map(|sandbox| sandbox.uid.clone());
        let adopted = lent.is_some();
        let uid = stated
            .map(str::to_owned)
            .or_else(|| remembered.map(|each| each.uid.clone()))
            .or(lent)
            .unwrap_or_else(|| new_uid(&full_name, offer, at.now));
        let seen = remembered.map_or_else(|| at.now.to_micros_text(), |each| each.seen.clone());
        let identity = Identity {
            version: VERSION,
            full_name: full_name.clone(),
            uid: uid.clone(),
            manifest: offer.manifest.clone(),
            bytes_hash: format!("{:032x}", offer.bytes_hash),
            pod_hash: format!("{:032x}", offer.pod_hash),
            seen: seen.clone(),
        };
        let record = (self.known.get(&full_name) != Some(&identity)).then(|| Record {
            folder: UIDS_FOLDER,
            name: record_name(&full_name),
            content: serde_json::to_vec(&identity).ok(),
        });
        self.known.insert(full_name, identity);
        Identified {
            pod: under_uid(offer, &uid, &seen),
            manifest: offer.manifest.clone(),
            source: offer.source,
            record,
            adopted,
        }
    }

    /// Forgets every UID but those of these full names. Call only once every source has reported.
    pub fn keep_only(&mut self, full_names: &BTreeSet<String>) -> Vec<Record> {
        let mut gone = Vec::new();
        self.known.retain(|full_name, _| {
            let stays = full_names.contains(full_name);
            if !stays {
                let name = record_name(full_name);
                gone.push(Record { folder: UIDS_FOLDER, name, content: None });
            }
            stays
        });
        gone
    }
}

fn under_uid(offer: &Offer, uid: &str, seen: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(&offer.pod);
    identify(&mut pod, uid, seen);
    Arc::new(pod)
}

fn is_same(identity: &Identity, offer: &Offer) -> bool {
    identity.bytes_hash == format!("{:032x}", offer.bytes_hash)
        || identity.pod_hash == format!("{:032x}", offer.pod_hash)
}

/// In the format of the reference's static UIDs.
fn new_uid(full_name: &str, offer: &Offer, now: ApiTime) -> String {
    let words = format!("{full_name} {} {:032x} {}", offer.manifest, offer.pod_hash, now.nanos());
    format!("{:032x}", fnv128a(words.as_bytes()))
}

/// The newest sandbox whose static pod is this one.
fn lender<'a>(pod: &Pod, at: &WhenAndWhere<'a>) -> Option<&'a SandboxRecord> {
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
fn has_same_containers(pod: &Pod, sandbox: &SandboxRecord, at: &WhenAndWhere<'_>) -> bool {
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
