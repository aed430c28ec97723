//! Whether a pod waits for room that pods which are ending will leave.
//!
//! Rules: the reference rejects a pod for which there is no room at the moment, and where pods come
//! from people (`NodeRoom::waits_for_ending`) that would be for good: nobody makes the pod again. There
//! it waits, if all that stands against it are pods that are ending. It never waits where others would
//! still stand against it when those are gone.

use pod_model::pod::Pod;

use super::{NodeAbilities, NodeRoom, Verdict, judge_all};

/// The pods that were admitted and have not ended.
#[derive(Debug, Clone, Default)]
pub struct PresentPods<'a> {
    pub staying: Vec<&'a Pod>,
    pub ending: Vec<&'a Pod>,
}

/// Judges `pod` by all that is known of the node.
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
