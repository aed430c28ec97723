//! The pods of the API server that are bound to this node, and the mirror pods among them.
//!
//! Rules: fed by a list and the changes after it; before the first list has ended nothing counts as
//! gone. What makes a pod static or a mirror is decided by where it came from: the source annotation
//! of a pod of the API server is overwritten. A version of a pod that differs only in its status,
//! resourceVersion or managed fields is the same pod, so that our own writes plan nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_manifest::static_pod::{CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION};
use pod_model::pod::status::PodStatus;
use pod_model::pod::{ObjectMeta, Pod};
use ports::cluster_api::FeedEvent;
use ports::{ApiPod, ApiTime};

#[cfg(test)]
mod tests;

/// The annotation of a mirror pod: the hash of the static pod that it shows.
pub const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The source of pods of the API server, as the annotation says.
pub const API_SOURCE: &str = "api";

/// A pod, and its status as the API server has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiPodEntry {
    /// The same `Arc` as long as only status and resourceVersion change.
    pub pod: Arc<Pod>,
    pub status: Arc<PodStatus>,
    pub resource_version: Box<str>,
}

/// The mirror of a static pod.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorPod {
    pub uid: Box<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub hash: Box<str>,
    pub is_deleted: bool,
    pub status: Arc<PodStatus>,
    pub resource_version: Box<str>,
}

/// The pods of the API server. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiPods {
    /// By UID.
    pub pods: Arc<BTreeMap<Box<str>, Arc<ApiPodEntry>>>,
    /// By UID.
    pub mirrors: Arc<BTreeMap<Box<str>, Arc<MirrorPod>>>,
    /// Whether a list has ended: what is not here is not in the API server.
    pub is_listed: bool,
    /// The UIDs of a list that has not ended.
    pub(crate) listing: Option<Arc<BTreeSet<Box<str>>>>,
}

impl ApiPods {
    /// Applies an event of the feed; whether anything has changed.
    pub fn apply(&mut self, event: FeedEvent<ApiPod>, now: ApiTime) -> bool {
        match event {
            FeedEvent::ListBegun => {
                self.listing = Some(Arc::default());
                false
            }
            FeedEvent::Listed(pods) => {
                let mut changed = false;
                for pod in pods {
                    if let Some(listing) = &mut self.listing {
                        Arc::make_mut(listing).insert(pod.pod.metadata.uid.clone());
                    }
                    changed |= self.upsert(pod, now);
                }
                changed
            }
            FeedEvent::ListEnded => self.end_list(),
            FeedEvent::Applied(pod) => self.upsert(pod, now),
            FeedEvent::Deleted(pod) => self.remove(&pod.pod.metadata.uid),
            FeedEvent::Unreadable { object, deleted: true, .. } => self.remove_named(&object),
            // What it was before still holds.
            FeedEvent::Unreadable { object, .. } => {
                if let (Some(uid), Some(listing)) = (self.named(&object), &mut self.listing) {
                    Arc::make_mut(listing).insert(uid);
                }
                false
            }
            FeedEvent::Interrupted(_) | FeedEvent::Resumed => false,
        }
    }

    /// Applies the answer to a write of this agent: a version that the feed may not have sent yet.
    pub fn apply_answer(&mut self, pod: ApiPod, now: ApiTime) -> bool {
        let uid = &pod.pod.metadata.uid;
        let known = self.pods.get(uid).map(|entry| &entry.resource_version);
        let known = known.or_else(|| self.mirrors.get(uid).map(|mirror| &mirror.resource_version));
        // A pod that the feed has removed is not brought back.
        match known {
            Some(known) if is_newer(&pod.pod.metadata.resource_version, known) => {
                self.upsert(pod, now)
            }
            _ => false,
        }
    }

    fn upsert(&mut self, api_pod: ApiPod, now: ApiTime) -> bool {
        let ApiPod { mut pod, status } = api_pod;
        let uid = pod.metadata.uid.clone();
        let resource_version = pod.metadata.resource_version.clone();
        if let Some(hash) = pod.metadata.annotations.get(CONFIG_MIRROR_ANNOTATION) {
            let mirror = MirrorPod {
                uid: uid.clone(),
                namespace: pod.metadata.namespace.clone(),
                name: pod.metadata.name.clone(),
                hash: hash.clone(),
                is_deleted: pod.metadata.deletion_timestamp.is_some(),
                status,
                resource_version,
            };
            if self.mirrors.get(&uid).is_some_and(|known| **known == mirror) {
                return false;
            }
            Arc::make_mut(&mut self.mirrors).insert(uid, Arc::new(mirror));
            return true;
        }
        let known = self.pods.get(&uid);
        // A list is the truth, also of an API server that was set back.
        let is_list = self.listing.is_some();
        if !is_list
            && known.is_some_and(|known| is_newer(&known.resource_version, &resource_version))
        {
            return false;
        }
        let seen = known
            .and_then(|known| known.pod.metadata.annotations.get(CONFIG_SEEN_ANNOTATION).cloned())
            .unwrap_or_else(|| Box::from(now.to_micros_text()));
        let annotations = &mut pod.metadata.annotations;
        annotations.insert(CONFIG_SOURCE_ANNOTATION, Box::from(API_SOURCE));
        annotations.insert(CONFIG_SEEN_ANNOTATION, seen);
        let pod = match known {
            Some(known) => {
                pod.metadata.resource_version = known.pod.metadata.resource_version.clone();
                pod.status = known.pod.status.clone();
                if pod == *known.pod { known.pod.clone() } else { Arc::new(pod) }
            }
            None => Arc::new(pod),
        };
        let entry = ApiPodEntry { pod, status, resource_version };
        if known.is_some_and(|known| **known == entry) {
            return false;
        }
        Arc::make_mut(&mut self.pods).insert(uid, Arc::new(entry));
        true
    }

    fn end_list(&mut self) -> bool {
        let Some(listed) = self.listing.take() else { return false };
        let gone: Vec<Box<str>> = self
            .pods
            .keys()
            .chain(self.mirrors.keys())
            .filter(|uid| !listed.contains(*uid))
            .cloned()
            .collect();
        for uid in &gone {
            self.remove(uid);
        }
        let is_first = !std::mem::replace(&mut self.is_listed, true);
        is_first || !gone.is_empty()
    }

    fn remove(&mut self, uid: &str) -> bool {
        if self.pods.contains_key(uid) {
            Arc::make_mut(&mut self.pods).remove(uid);
            return true;
        }
        if self.mirrors.contains_key(uid) {
            Arc::make_mut(&mut self.mirrors).remove(uid);
            return true;
        }
        false
    }

    fn remove_named(&mut self, object: &str) -> bool {
        self.named(object).is_some_and(|uid| self.remove(&uid))
    }

    /// The UID of the pod `pods/NAMESPACE/NAME`, which is all that is known of one that cannot be
    /// decoded.
    fn named(&self, object: &str) -> Option<Box<str>> {
        let (namespace, name) = object.strip_prefix("pods/")?.split_once('/')?;
        let metas = self.pods.values().map(|entry| &entry.pod.metadata);
        let is_named = |meta: &&ObjectMeta| *meta.namespace == *namespace && *meta.name == *name;
        metas.filter(is_named).map(|meta| meta.uid.clone()).next()
    }

    /// The mirror of a static pod.
    pub fn mirror_of(&self, namespace: &str, name: &str) -> Option<&Arc<MirrorPod>> {
        self.mirrors.values().find(|each| *each.namespace == *namespace && *each.name == *name)
    }
}

/// Whether version `one` is later than `other`. Versions are compared as the numbers that they are
/// since Kubernetes 1.35; any other text counts as later.
pub fn is_newer(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one > other,
        _ => one != other,
    }
}
