//! Which pods may run here: asked once for each, in order, before its worker begins.
//!
//! Rule: a pod that an earlier agent started is admitted again, whatever has changed since; a new
//! one is judged with all that are here. What was decided holds until the pod is gone.

use node_policy::admission::{NodeAbilities, NodeRoom, Verdict, judge_all};
use pod_lifecycle::Admission;
use pod_model::pod::Pod;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// By UID: the pod and what was decided about it.
type Decided = BTreeMap<String, (Arc<Pod>, watch::Sender<Admission>)>;

#[derive(Clone)]
pub(crate) struct Admissions {
    room: Arc<NodeRoom>,
    abilities: Arc<NodeAbilities>,
    known: Arc<Mutex<Decided>>,
    /// Changes whenever the set of admitted pods does.
    changes: Arc<watch::Sender<u64>>,
}

impl Admissions {
    /// What the runtime can do of `abilities` is said with each pod.
    pub(crate) fn new(room: NodeRoom, abilities: NodeAbilities) -> Self {
        let changes = Arc::new(watch::Sender::new(0));
        Self {
            room: Arc::new(room),
            abilities: Arc::new(abilities),
            known: Arc::default(),
            changes,
        }
    }

    fn known(&self) -> MutexGuard<'_, Decided> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a pod, unless that was done. `was_here`: an earlier agent had admitted it;
    /// `strict_groups`: whether the runtime knows them.
    pub(crate) fn decide(&self, pod: &Arc<Pod>, was_here: bool, strict_groups: bool) {
        let uid = pod.metadata.uid.to_string();
        let mut known = self.known();
        if let Some((present, _)) = known.get_mut(&uid) {
            *present = pod.clone();
            return;
        }
        let others: Vec<&Pod> = known
            .values()
            .filter(|(_, admission)| *admission.borrow() == Admission::Admitted)
            .map(|(other, _)| &**other)
            .collect();
        let abilities = NodeAbilities { strict_groups, ..(*self.abilities).clone() };
        let admission = match judge_all(pod, &self.room, &abilities, &others) {
            _ if was_here => Admission::Admitted,
            Verdict::Admitted => Admission::Admitted,
            Verdict::Rejected { reason, message } => Admission::Rejected { reason, message },
        };
        known.insert(uid, (pod.clone(), watch::Sender::new(admission)));
        drop(known);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn watch(&self, uid: &str) -> watch::Receiver<Admission> {
        let known = self.known();
        let sender = known.get(uid).map(|(_, sender)| sender.subscribe());
        // A pod that ends without ever having been asked about (an orphan) waits for no answer.
        sender.unwrap_or_else(|| watch::Sender::new(Admission::Admitted).subscribe())
    }

    pub(crate) fn release(&self, uid: &str) {
        let was_there = self.known().remove(uid).is_some();
        if was_there {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The pods that were admitted and are still here.
    pub(crate) fn admitted(&self) -> Vec<Arc<Pod>> {
        let known = self.known();
        let admitted =
            known.values().filter(|(_, admission)| *admission.borrow() == Admission::Admitted);
        admitted.map(|(pod, _)| pod.clone()).collect()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests;
