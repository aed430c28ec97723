//! All pods, in few bytes each: what decisions read, and what a deletion must name.
//!
//! Rule: one entry per UID. Namespaces and lists of tolerations are interned. Pods that garbage
//! collection may concern are indexed, so that the cost of a pass depends on their number only.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use node_health::no_execute::{BoundPod, Toleration, bound_at};
use node_health::pod_cleanup::Phase;
use node_health::{ConditionState, ControllerTime, NodeId, PodId, RemoteTime};
use ports::cluster_objects::Pod;

use crate::convert;
use crate::uid::Uid;

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CachedPod {
    pub(crate) uid: Uid,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Box<str>,
    /// The node it is bound to.
    pub(crate) node: Option<NodeId>,
    pub(crate) tolerations: Arc<[Toleration]>,
    pub(crate) created: RemoteTime,
    /// When it was bound, on our own clock: never after we first saw it bound.
    pub(crate) bound: Option<ControllerTime>,
    pub(crate) phase: Phase,
    pub(crate) ready: Option<ConditionState>,
    pub(crate) evicted: bool,
    pub(crate) terminating: bool,
    /// Its resource version; zero if that is not a number.
    pub(crate) version: u64,
    /// The list in which it was last seen.
    pub(crate) list: u32,
}

impl CachedPod {
    pub(crate) fn facts(&self, pod: PodId) -> BoundPod<'_> {
        BoundPod {
            pod,
            tolerations: &self.tolerations,
            bound: self.bound,
            terminating: self.terminating,
        }
    }

    /// Namespace and name with a slash between.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What an observation of a pod changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodChange {
    pub(crate) pod: PodId,
    /// Observed for the first time, or bound only now.
    pub(crate) newly_bound: bool,
}

#[derive(Debug, Default)]
pub(crate) struct PodCache {
    numbers: HashMap<Uid, u32>,
    entries: Vec<Option<Box<CachedPod>>>,
    free: Vec<u32>,
    namespaces: HashSet<Arc<str>>,
    tolerations: HashMap<Box<str>, Arc<[Toleration]>>,
    /// Buffer for the key of a toleration list, reused for each pod.
    key: String,
    /// Terminated, terminating or bound to an unknown node.
    of_interest: BTreeSet<PodId>,
}

/// Unused namespaces and toleration lists are swept beyond this number.
const SWEEP: usize = 1024;

impl PodCache {
    pub(crate) fn get(&self, pod: PodId) -> Option<&CachedPod> {
        self.entries.get(usize::try_from(pod.0).ok()?)?.as_deref()
    }

    pub(crate) fn find(&self, uid: &Uid) -> Option<PodId> {
        self.numbers.get(uid).copied().map(PodId)
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Records a pod as it is now, bound to this node.
    pub(crate) fn upsert(
        &mut self,
        pod: &Pod,
        node: Option<NodeId>,
        list: u32,
        now: ControllerTime,
    ) -> PodChange {
        let uid = Uid::new(&pod.metadata.uid);
        let namespace = self.namespace(&pod.metadata.namespace);
        let tolerations = self.tolerations(pod);
        let known = self.find(&uid);
        let before = known.and_then(|known| self.get(known));
        let newly_bound = node.is_some() && before.and_then(|it| it.node) != node;
        let was_bound = before.filter(|_| !newly_bound).and_then(|it| it.bound);
        let bound = bound_at(convert::bound(pod), was_bound, now);
        let entry = CachedPod {
            node,
            list,
            bound,
            ..convert::pod_entry(pod, uid.clone(), namespace, tolerations)
        };
        let number = known.unwrap_or_else(|| self.number(uid));
        let place = usize::try_from(number.0).unwrap_or(usize::MAX);
        if let Some(slot) = self.entries.get_mut(place) {
            match slot {
                Some(known) => **known = entry,
                None => *slot = Some(Box::new(entry)),
            }
        }
        PodChange { pod: number, newly_bound }
    }

    fn number(&mut self, uid: Uid) -> PodId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        self.numbers.insert(uid, number);
        PodId(number)
    }

    pub(crate) fn remove(&mut self, pod: PodId) -> Option<Box<CachedPod>> {
        let entry = self.entries.get_mut(usize::try_from(pod.0).ok()?)?.take()?;
        self.numbers.remove(&entry.uid);
        self.of_interest.remove(&pod);
        self.free.push(pod.0);
        Some(entry)
    }

    /// Pods that were not in this list.
    pub(crate) fn not_in_list(&self, list: u32) -> Vec<PodId> {
        let numbered = (0..).map(PodId).zip(&self.entries);
        let old = |entry: &Option<Box<CachedPod>>| entry.as_ref().is_some_and(|it| it.list != list);
        numbered.filter(|(_, entry)| old(entry)).map(|(pod, _)| pod).collect()
    }

    /// Sets whether garbage collection may concern it.
    pub(crate) fn set_interest(&mut self, pod: PodId, interest: bool) {
        if interest {
            self.of_interest.insert(pod);
        } else {
            self.of_interest.remove(&pod);
        }
    }

    pub(crate) fn of_interest(&self) -> impl Iterator<Item = (PodId, &CachedPod)> {
        self.of_interest.iter().filter_map(|pod| Some((*pod, self.get(*pod)?)))
    }

    fn namespace(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(name) {
            return known.clone();
        }
        if self.namespaces.len() >= SWEEP && self.namespaces.len().is_power_of_two() {
            self.namespaces.retain(|name| Arc::strong_count(name) > 1);
        }
        let name: Arc<str> = name.into();
        self.namespaces.insert(name.clone());
        name
    }

    fn tolerations(&mut self, pod: &Pod) -> Arc<[Toleration]> {
        convert::tolerations_key(&pod.spec.tolerations, &mut self.key);
        if let Some(known) = self.tolerations.get(self.key.as_str()) {
            return known.clone();
        }
        if self.tolerations.len() >= SWEEP && self.tolerations.len().is_power_of_two() {
            self.tolerations.retain(|_, list| Arc::strong_count(list) > 1);
        }
        let list: Arc<[Toleration]> =
            pod.spec.tolerations.iter().map(convert::toleration).collect();
        self.tolerations.insert(self.key.as_str().into(), list.clone());
        list
    }
}

#[cfg(test)]
mod tests;
