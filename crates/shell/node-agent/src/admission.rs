//! Which pods may run here: decided once for each, in order, before its worker starts.
//!
//! Rules: a pod that an earlier agent started is admitted again, whatever has changed since. A new
//! pod is judged with all pods that are here and have not ended; while it waits for resources it is
//! judged again whenever one of them ends. A decision holds until the pod is gone, whatever changes
//! of the node: a changed Node object counts for later pods. A critical pod
//! that preempts others waits until none of their containers runs, or until a deadline; its victims
//! release their resources as soon as they are chosen.

use crate::metrics::{Metrics, names};
use node_policy::admission::{
    AdmissionDecision, NodeCapacity, NodeSupport, PresentPods, admit_beside, lacking,
};
use node_status::NodeObject;
use pod_lifecycle::Admission;
use pod_model::pod::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest time that preempted pods get before the preemptor goes on without them.
const MIN_PREEMPTION_WAIT: Duration = Duration::from_secs(10);
/// A grace period may be any number; this bounds the wait.
const MAX_PREEMPTION_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A pod and its admission.
struct AdmissionRecord {
    pod: Arc<Pod>,
    admission: watch::Sender<Admission>,
    /// UIDs of the pods that end for this one, and until when it waits for them.
    victims: BTreeSet<String>,
    preemption_deadline: Instant,
    /// Nothing of it runs any more, or it was preempted.
    releases_resources: bool,
    is_ending: bool,
    /// Order of arrival.
    order: u64,
    /// Set while it waits for resources of pods that are ending; the value: whether the runtime
    /// supports strict supplemental groups.
    waits_for_room: Option<bool>,
}

impl AdmissionRecord {
    fn is_admitted(&self) -> bool {
        !matches!(*self.admission.borrow(), Admission::Rejected { .. }) && !self.releases_resources
    }

    fn stop_waiting(&mut self) {
        self.victims.clear();
        self.waits_for_room = None;
        self.admission.send_replace(Admission::Admitted);
    }
}

#[derive(Clone)]
pub(crate) struct Admissions {
    /// As this machine would report it.
    own_capacity: Arc<NodeCapacity>,
    /// With what the Node object says, once there is one.
    capacity: Arc<watch::Sender<Arc<NodeCapacity>>>,
    /// Resources of device plugins: these are allocated after this decision, and not counted here.
    device_resources: watch::Receiver<Arc<BTreeSet<String>>>,
    abilities: Arc<NodeSupport>,
    metrics: Metrics,
    known: Arc<Mutex<BTreeMap<String, AdmissionRecord>>>,
    /// Changes whenever the set of admitted pods does.
    changes: Arc<watch::Sender<u64>>,
}

impl Admissions {
    /// What the runtime supports of `abilities` is passed with each pod.
    pub(crate) fn new(capacity: NodeCapacity, abilities: NodeSupport, metrics: Metrics) -> Self {
        let changes = Arc::new(watch::Sender::new(0));
        let own_capacity = Arc::new(capacity);
        Self {
            capacity: Arc::new(watch::Sender::new(own_capacity.clone())),
            own_capacity,
            device_resources: watch::Sender::default().subscribe(),
            abilities: Arc::new(abilities),
            metrics,
            known: Arc::default(),
            changes,
        }
    }

    #[must_use]
    pub(crate) fn with_device_resources(
        self,
        device_resources: watch::Receiver<Arc<BTreeSet<String>>>,
    ) -> Self {
        Self { device_resources, ..self }
    }

    /// Pods are judged by this Node object from now on; earlier decisions hold.
    pub(crate) fn set_node(&self, node: &NodeObject) {
        let next = self.own_capacity.with_node(node);
        self.capacity.send_if_modified(|known| {
            let changed = **known != next;
            if changed {
                *known = Arc::new(next);
            }
            changed
        });
    }

    fn capacity(&self) -> Arc<NodeCapacity> {
        let capacity = self.capacity.borrow().clone();
        let devices = self.device_resources.borrow().clone();
        if devices.iter().all(|name| !capacity.allocatable.contains(name)) {
            return capacity;
        }
        let mut without = NodeCapacity::clone(&capacity);
        for name in &*devices {
            without.allocatable.remove(name);
        }
        Arc::new(without)
    }

    /// Whether the pod was decided about.
    pub(crate) fn is_decided(&self, uid: &str) -> bool {
        self.known().contains_key(uid)
    }

    /// All pods that were decided about.
    pub(crate) fn known_pods(&self) -> Vec<Arc<Pod>> {
        self.known().values().map(|decided| decided.pod.clone()).collect()
    }

    /// Takes an admission back: the pod's devices could not be allocated.
    pub(crate) fn reject(&self, uid: &str, reason: &str, message: String) {
        let mut known = self.known();
        let Some(decided) = known.get_mut(uid) else { return };
        self.metrics.count(&names::ADMISSION_REJECTIONS, &[names::rejection(reason)]);
        decided.admission.send_replace(Admission::Rejected { reason: reason.to_owned(), message });
        self.retry_waiting(&mut known);
        drop(known);
        self.notify_change();
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, AdmissionRecord>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a pod unless that was done, and returns the UIDs of the pods to preempt.
    /// `was_admitted`: an earlier agent had admitted it; `strict_supplemental_groups`: whether the
    /// runtime supports them.
    #[must_use]
    pub(crate) fn decide(
        &self,
        pod: &Arc<Pod>,
        was_admitted: bool,
        strict_supplemental_groups: bool,
    ) -> Vec<String> {
        let uid = pod.metadata.uid.to_string();
        let mut known = self.known();
        if let Some(present) = known.get_mut(&uid) {
            present.pod = pod.clone();
            return Vec::new();
        }
        let order = known.values().map(|other| other.order + 1).max().unwrap_or(0);
        let present = present(&known, order);
        let others: Vec<&Pod> =
            present.staying.iter().chain(&present.terminating).copied().collect();
        let abilities = NodeSupport { strict_supplemental_groups, ..(*self.abilities).clone() };
        let mut waits_for_room = None;
        let capacity = self.capacity();
        let (admission, victims) = match admit_beside(pod, &capacity, &abilities, &present) {
            _ if was_admitted => (Admission::Admitted, Vec::new()),
            AdmissionDecision::Admitted => (Admission::Admitted, Vec::new()),
            AdmissionDecision::AdmittedAfterTermination(_) => {
                waits_for_room = Some(strict_supplemental_groups);
                (Admission::WaitingForPreemption(pod_names(&present.terminating)), Vec::new())
            }
            AdmissionDecision::AdmittedByPreemption(victims) => {
                let signal = lacking(pod, &capacity, &others).unwrap_or_default();
                for _ in &victims {
                    self.metrics.count(&names::PREEMPTIONS, &[&signal]);
                }
                let victim_names = others
                    .iter()
                    .filter(|other| victims.iter().any(|uid| **uid == *other.metadata.uid))
                    .map(|other| other.full_name());
                (Admission::WaitingForPreemption(victim_names.collect()), victims)
            }
            AdmissionDecision::Rejected { reason, message } => {
                self.metrics.count(&names::ADMISSION_REJECTIONS, &[names::rejection(&reason)]);
                (Admission::Rejected { reason, message }, Vec::new())
            }
        };
        let longest = victims.iter().filter_map(|victim| known.get(victim)).map(|victim| {
            let grace = victim.pod.spec.termination_grace_period_seconds.unwrap_or(0);
            Duration::from_secs(u64::try_from(grace).unwrap_or(0))
        });
        let longest = longest.map(|grace| grace.saturating_add(grace / 2)).max();
        let longest = longest.unwrap_or_default().clamp(MIN_PREEMPTION_WAIT, MAX_PREEMPTION_WAIT);
        for victim in &victims {
            if let Some(victim) = known.get_mut(victim) {
                victim.releases_resources = true;
            }
        }
        let decided = AdmissionRecord {
            pod: pod.clone(),
            admission: watch::Sender::new(admission),
            victims: victims.iter().cloned().collect(),
            preemption_deadline: Instant::now() + longest,
            releases_resources: false,
            is_ending: false,
            order,
            waits_for_room,
        };
        known.insert(uid, decided);
        drop(known);
        self.notify_change();
        victims
    }

    fn notify_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn watch(&self, uid: &str) -> watch::Receiver<Admission> {
        let known = self.known();
        let sender = known.get(uid).map(|decided| decided.admission.subscribe());
        // A pod that ends without an admission (an orphan) waits for no answer.
        sender.unwrap_or_else(|| watch::Sender::new(Admission::Admitted).subscribe())
    }

    /// Marks the pod as ending: it is not desired any more.
    pub(crate) fn is_ending(&self, uid: &str) {
        if let Some(decided) = self.known().get_mut(uid) {
            decided.is_ending = true;
        }
    }

    /// Judges the pods that wait for resources again, in order of arrival.
    fn retry_waiting(&self, known: &mut BTreeMap<String, AdmissionRecord>) {
        let waiting = known.iter().filter_map(|(uid, decided)| {
            Some((decided.order, uid.clone(), decided.waits_for_room?))
        });
        let mut waiting: Vec<(u64, String, bool)> = waiting.collect();
        waiting.sort_unstable();
        for (order, uid, strict_supplemental_groups) in waiting {
            let abilities = NodeSupport { strict_supplemental_groups, ..(*self.abilities).clone() };
            let present = present(known, order);
            let Some(pod) = known.get(&uid).map(|decided| decided.pod.clone()) else { continue };
            let verdict = admit_beside(&pod, &self.capacity(), &abilities, &present);
            let terminating = pod_names(&present.terminating);
            let Some(decided) = known.get_mut(&uid) else { continue };
            let (reason, message) = match verdict {
                AdmissionDecision::Admitted => {
                    decided.stop_waiting();
                    continue;
                }
                AdmissionDecision::AdmittedAfterTermination(_) => {
                    decided.admission.send_replace(Admission::WaitingForPreemption(terminating));
                    continue;
                }
                AdmissionDecision::Rejected { reason, message } => (reason, message),
                AdmissionDecision::AdmittedByPreemption(_) => (
                    "UnexpectedAdmissionError".to_owned(),
                    "The pods that were ending left too little room".to_owned(),
                ),
            };
            self.metrics.count(&names::ADMISSION_REJECTIONS, &[names::rejection(&reason)]);
            decided.waits_for_room = None;
            decided.admission.send_replace(Admission::Rejected { reason, message });
        }
    }

    /// None of the pod's containers runs any more, and none will.
    pub(crate) fn ended(&self, uid: &str) {
        let mut known = self.known();
        let mut changed = false;
        if let Some(decided) = known.get_mut(uid) {
            changed = !std::mem::replace(&mut decided.releases_resources, true);
        }
        release_preemptors(&mut known, uid);
        if changed {
            self.retry_waiting(&mut known);
        }
        drop(known);
        if changed {
            self.notify_change();
        }
    }

    pub(crate) fn release(&self, uid: &str) {
        let mut known = self.known();
        let was_there = known.remove(uid).is_some();
        release_preemptors(&mut known, uid);
        if was_there {
            self.retry_waiting(&mut known);
        }
        drop(known);
        if was_there {
            self.notify_change();
        }
    }

    /// When the next pod reaches its preemption deadline.
    pub(crate) fn next_preemption_deadline(&self) -> Option<Instant> {
        let known = self.known();
        let waiting = known.values().filter(|decided| !decided.victims.is_empty());
        waiting.map(|decided| decided.preemption_deadline).min()
    }

    /// Admits the pods that have reached their preemption deadline; returns their names.
    pub(crate) fn expire_preemptions(&self, now: Instant) -> Vec<String> {
        let mut known = self.known();
        let due = known
            .values_mut()
            .filter(|decided| !decided.victims.is_empty() && decided.preemption_deadline <= now);
        due.map(|decided| {
            decided.stop_waiting();
            decided.pod.full_name()
        })
        .collect()
    }

    /// The pods that were admitted and have not ended.
    pub(crate) fn admitted(&self) -> Vec<Arc<Pod>> {
        let known = self.known();
        known
            .values()
            .filter(|decided| decided.is_admitted())
            .map(|decided| decided.pod.clone())
            .collect()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The pods that count against the pod with number `order`: of those that wait for resources only
/// the earlier ones.
fn present(known: &BTreeMap<String, AdmissionRecord>, order: u64) -> PresentPods<'_> {
    let counts = |other: &&AdmissionRecord| {
        other.is_admitted()
            && other.order != order
            && (other.waits_for_room.is_none() || other.order < order)
    };
    let (terminating, staying): (Vec<&AdmissionRecord>, Vec<&AdmissionRecord>) =
        known.values().filter(counts).partition(|other| other.is_ending);
    PresentPods { staying: pods_of(&staying), terminating: pods_of(&terminating) }
}

fn pods_of<'a>(decided: &[&'a AdmissionRecord]) -> Vec<&'a Pod> {
    decided.iter().map(|each| &*each.pod).collect()
}

fn pod_names(pods: &[&Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.full_name()).collect()
}

/// Admits the pods that waited for this pod alone.
fn release_preemptors(known: &mut BTreeMap<String, AdmissionRecord>, ended: &str) {
    for decided in known.values_mut() {
        if decided.victims.remove(ended) && decided.victims.is_empty() {
            decided.stop_waiting();
        }
    }
}

#[cfg(test)]
mod tests;
