//! Whether a pod waits for the resources of terminating pods.
//!
//! Rules: the reference rejects a pod that does not fit now. Where pods come from local clients
//! (`NodeRoom::waits_for_ending`) that would be final: no controller recreates the pod. There it
//! waits, if only terminating pods stand against it. It never waits where others would still stand
//! against it when those are gone.

use pod_model::pod::Pod;

use super::{NodeAbilities, NodeRoom, Verdict, judge_all};

/// The pods that were admitted and have not terminated.
#[derive(Debug, Clone, Default)]
pub struct PresentPods<'a> {
    pub staying: Vec<&'a Pod>,
    pub ending: Vec<&'a Pod>,
}

/// Checks `pod` against all other pods of the node.
pub fn judge_beside(
    pod: &Pod,
    room: &NodeRoom,
    abilities: &NodeAbilities,
    present: &PresentPods<'_>,
) -> Verdict {
    let PresentPods { staying, ending } = present;
    let all: Vec<&Pod> = staying.iter().chain(ending).copied().collect();
    let now = judge_all(pod, room, abilities, &all);
    if now == Verdict::Admitted || !room.waits_for_ending || ending.is_empty() {
        return now;
    }
    match judge_all(pod, room, abilities, staying) {
        Verdict::Admitted => {
            Verdict::AdmittedAfter(ending.iter().map(|pod| pod.metadata.uid.to_string()).collect())
        }
        _ => now,
    }
}
