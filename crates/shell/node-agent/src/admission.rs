//! Which pods may run here: decided once for each, in order, before its worker starts.
//!
//! Rules: a pod that an earlier agent started is admitted again, whatever has changed since. A new
//! pod is judged with all pods that are here and have not ended; while it waits for resources it is
//! judged again whenever one of them ends. A decision holds until the pod is gone. A critical pod
//! that preempts others waits until none of their containers runs, or until a deadline; its victims
//! release their resources as soon as they are chosen.

use crate::metrics::{Metrics, names};
use node_policy::admission::{
    NodeAbilities, NodeRoom, PresentPods, Verdict, judge_beside, lacking,
};
use pod_lifecycle::Admission;
use pod_model::pod::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest time that preempted pods get before the preemptor goes on without them.
const LEAST_TIME_TO_END: Duration = Duration::from_secs(10);
/// A grace period may be any number; this bounds the wait.
const MOST_TIME_TO_END: Duration = Duration::from_secs(365 * 24 * 3600);

/// A pod and its admission.
struct Decided {
    pod: Arc<Pod>,
    admission: watch::Sender<Admission>,
    /// UIDs of the pods that end for this one, and until when it waits for them.
    awaits: BTreeSet<String>,
    awaits_until: Instant,
    /// Nothing of it runs any more, or it was preempted.
    takes_no_room: bool,
    is_ending: bool,
    /// Order of arrival.
    order: u64,
    /// Set while it waits for resources of pods that are ending; the value: whether the runtime
    /// supports strict supplemental groups.
    waits_for_room: Option<bool>,
}

impl Decided {
    fn is_in(&self) -> bool {
        !matches!(*self.admission.borrow(), Admission::Rejected { .. }) && !self.takes_no_room
    }

    fn go_on(&mut self) {
        self.awaits.clear();
        self.waits_for_room = None;
        self.admission.send_replace(Admission::Admitted);
    }
}

#[derive(Clone)]
pub(crate) struct Admissions {
    room: Arc<NodeRoom>,
    abilities: Arc<NodeAbilities>,
    metrics: Metrics,
    known: Arc<Mutex<BTreeMap<String, Decided>>>,
    /// Changes whenever the set of admitted pods does.
    changes: Arc<watch::Sender<u64>>,
}

impl Admissions {
    /// What the runtime supports of `abilities` is passed with each pod.
    pub(crate) fn new(room: NodeRoom, abilities: NodeAbilities, metrics: Metrics) -> Self {
        let changes = Arc::new(watch::Sender::new(0));
        Self {
            room: Arc::new(room),
            abilities: Arc::new(abilities),
            metrics,
            known: Arc::default(),
            changes,
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Decided>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a pod unless that was done, and returns the UIDs of the pods to preempt.
    /// `was_here`: an earlier agent had admitted it; `strict_groups`: whether the runtime supports
    /// them.
    #[must_use]
    pub(crate) fn decide(
        &self,
        pod: &Arc<Pod>,
        was_here: bool,
        strict_groups: bool,
    ) -> Vec<String> {
        let uid = pod.metadata.uid.to_string();
        let mut known = self.known();
        if let Some(present) = known.get_mut(&uid) {
            present.pod = pod.clone();
            return Vec::new();
        }
        let order = known.values().map(|other| other.order + 1).max().unwrap_or(0);
        let present = present(&known, order);
        let others: Vec<&Pod> = present.staying.iter().chain(&present.ending).copied().collect();
        let abilities = NodeAbilities { strict_groups, ..(*self.abilities).clone() };
        let mut waits_for_room = None;
        let (admission, victims) = match judge_beside(pod, &self.room, &abilities, &present) {
            _ if was_here => (Admission::Admitted, Vec::new()),
            Verdict::Admitted => (Admission::Admitted, Vec::new()),
            Verdict::AdmittedAfter(_) => {
                waits_for_room = Some(strict_groups);
                (Admission::MakingRoom(pod_names(&present.ending)), Vec::new())
            }
            Verdict::AdmittedInPlaceOf(victims) => {
                let signal = lacking(pod, &self.room, &others).unwrap_or_default();
                for _ in &victims {
                    self.metrics.count(&names::PREEMPTIONS, &[&signal]);
                }
                let victim_names = others
                    .iter()
                    .filter(|other| victims.iter().any(|uid| **uid == *other.metadata.uid))
                    .map(|other| other.full_name());
                (Admission::MakingRoom(victim_names.collect()), victims)
            }
            Verdict::Rejected { reason, message } => {
                self.metrics.count(&names::ADMISSION_REJECTIONS, &[names::rejection(&reason)]);
                (Admission::Rejected { reason, message }, Vec::new())
            }
        };
        let longest = victims.iter().filter_map(|victim| known.get(victim)).map(|victim| {
            let grace = victim.pod.spec.termination_grace_period_seconds.unwrap_or(0);
            Duration::from_secs(u64::try_from(grace).unwrap_or(0))
        });
        let longest = longest.map(|grace| grace.saturating_add(grace / 2)).max();
        let longest = longest.unwrap_or_default().clamp(LEAST_TIME_TO_END, MOST_TIME_TO_END);
        for victim in &victims {
            if let Some(victim) = known.get_mut(victim) {
                victim.takes_no_room = true;
            }
        }
        let decided = Decided {
            pod: pod.clone(),
            admission: watch::Sender::new(admission),
            awaits: victims.iter().cloned().collect(),
            awaits_until: Instant::now() + longest,
            takes_no_room: false,
            is_ending: false,
            order,
            waits_for_room,
        };
        known.insert(uid, decided);
        drop(known);
        self.say_change();
        victims
    }

    fn say_change(&self) {
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
    fn judge_waiting(&self, known: &mut BTreeMap<String, Decided>) {
        let waiting = known.iter().filter_map(|(uid, decided)| {
            Some((decided.order, uid.clone(), decided.waits_for_room?))
        });
        let mut waiting: Vec<(u64, String, bool)> = waiting.collect();
        waiting.sort_unstable();
        for (order, uid, strict_groups) in waiting {
            let abilities = NodeAbilities { strict_groups, ..(*self.abilities).clone() };
            let present = present(known, order);
            let Some(pod) = known.get(&uid).map(|decided| decided.pod.clone()) else { continue };
            let verdict = judge_beside(&pod, &self.room, &abilities, &present);
            let ending = pod_names(&present.ending);
            let Some(decided) = known.get_mut(&uid) else { continue };
            let (reason, message) = match verdict {
                Verdict::Admitted => {
                    decided.go_on();
                    continue;
                }
                Verdict::AdmittedAfter(_) => {
                    decided.admission.send_replace(Admission::MakingRoom(ending));
                    continue;
                }
                Verdict::Rejected { reason, message } => (reason, message),
                Verdict::AdmittedInPlaceOf(_) => (
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
            changed = !std::mem::replace(&mut decided.takes_no_room, true);
        }
        let_go_on(&mut known, uid);
        if changed {
            self.judge_waiting(&mut known);
        }
        drop(known);
        if changed {
            self.say_change();
        }
    }

    pub(crate) fn release(&self, uid: &str) {
        let mut known = self.known();
        let was_there = known.remove(uid).is_some();
        let_go_on(&mut known, uid);
        if was_there {
            self.judge_waiting(&mut known);
        }
        drop(known);
        if was_there {
            self.say_change();
        }
    }

    /// When the next pod reaches its preemption deadline.
    pub(crate) fn next_give_up(&self) -> Option<Instant> {
        let known = self.known();
        let waiting = known.values().filter(|decided| !decided.awaits.is_empty());
        waiting.map(|decided| decided.awaits_until).min()
    }

    /// Admits the pods that have reached their preemption deadline; returns their names.
    pub(crate) fn give_up(&self, now: Instant) -> Vec<String> {
        let mut known = self.known();
        let due = known
            .values_mut()
            .filter(|decided| !decided.awaits.is_empty() && decided.awaits_until <= now);
        due.map(|decided| {
            decided.go_on();
            decided.pod.full_name()
        })
        .collect()
    }

    /// The pods that were admitted and have not ended.
    pub(crate) fn admitted(&self) -> Vec<Arc<Pod>> {
        let known = self.known();
        known
            .values()
            .filter(|decided| decided.is_in())
            .map(|decided| decided.pod.clone())
            .collect()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The pods that count against the pod with number `order`: of those that wait for resources only
/// the earlier ones.
fn present(known: &BTreeMap<String, Decided>, order: u64) -> PresentPods<'_> {
    let counts = |other: &&Decided| {
        other.is_in()
            && other.order != order
            && (other.waits_for_room.is_none() || other.order < order)
    };
    let (ending, staying): (Vec<&Decided>, Vec<&Decided>) =
        known.values().filter(counts).partition(|other| other.is_ending);
    PresentPods { staying: pods_of(&staying), ending: pods_of(&ending) }
}

fn pods_of<'a>(decided: &[&'a Decided]) -> Vec<&'a Pod> {
    decided.iter().map(|each| &*each.pod).collect()
}

fn pod_names(pods: &[&Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.full_name()).collect()
}

/// Admits the pods that waited for this pod alone.
fn let_go_on(known: &mut BTreeMap<String, Decided>, ended: &str) {
    for decided in known.values_mut() {
        if decided.awaits.remove(ended) && decided.awaits.is_empty() {
            decided.go_on();
        }
    }
}

#[cfg(test)]
mod tests;
