//! Which pods may run here: asked once for each, in order, before its worker begins.
//!
//! Rules: a pod that an earlier agent started is admitted again, whatever has changed since; a new
//! one is judged with all that are here and have not ended, and again with each that ends while it
//! waits for room. What was decided holds until the pod is
//! gone. A critical pod for which others must end waits until none of their containers runs, or they
//! had more than long enough; those who end for it take no room from the moment they were chosen.

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

/// The least time that those who end for another pod have before it goes on without them.
const LEAST_TIME_TO_END: Duration = Duration::from_secs(10);
/// A grace period is whatever somebody wrote; beyond this, waiting for it is waiting for ever.
const MOST_TIME_TO_END: Duration = Duration::from_secs(365 * 24 * 3600);

/// A pod and what was decided about it.
struct Decided {
    pod: Arc<Pod>,
    admission: watch::Sender<Admission>,
    /// Those who end for it, and until when it waits for them.
    awaits: BTreeSet<String>,
    awaits_until: Instant,
    /// Nothing of it runs any more, or it was chosen to end.
    takes_no_room: bool,
    is_ending: bool,
    /// How many were asked about before it.
    order: u64,
    /// It waits for room that pods leave which are ending anyway; whether the runtime knows strict
    /// groups.
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
    /// What the runtime can do of `abilities` is said with each pod.
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

    /// Decides about a pod, unless that was done; answers with the UIDs of those who must end for
    /// it. `was_here`: an earlier agent had admitted it; `strict_groups`: whether the runtime knows
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
        // A pod that ends without ever having been asked about (an orphan) waits for no answer.
        sender.unwrap_or_else(|| watch::Sender::new(Admission::Admitted).subscribe())
    }

    /// It is wanted no more.
    pub(crate) fn is_ending(&self, uid: &str) {
        if let Some(decided) = self.known().get_mut(uid) {
            decided.is_ending = true;
        }
    }

    /// Judges those anew that wait for room, in the order in which they came.
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

    /// When the next pod that waits for others has waited long enough.
    pub(crate) fn next_give_up(&self) -> Option<Instant> {
        let known = self.known();
        let waiting = known.values().filter(|decided| !decided.awaits.is_empty());
        waiting.map(|decided| decided.awaits_until).min()
    }

    /// Lets those go on who have waited long enough; answers with their names.
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

/// The pods that count for one that came as number `order`: of those that wait for room only the
/// earlier ones.
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

/// Those who waited for this pod alone wait no more.
fn let_go_on(known: &mut BTreeMap<String, Decided>, ended: &str) {
    for decided in known.values_mut() {
        if decided.awaits.remove(ended) && decided.awaits.is_empty() {
            decided.go_on();
        }
    }
}

#[cfg(test)]
mod tests;
