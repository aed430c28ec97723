//! Whether a pod waits for the resources of terminating pods.
//!
//! Rules: the reference rejects a pod that does not fit now. Where pods come from local clients
//! (`NodeCapacity::waits_for_terminating_pods`) that would be final: no controller recreates the pod. There it
//! waits, if only terminating pods stand against it. It never waits where others would still stand
//! against it when those are gone.

use pod_model::pod::Pod;

use super::{AdmissionDecision, NodeCapacity, NodeSupport, check_all};

/// The pods that were admitted and have not terminated.
#[derive(Debug, Clone, Default)]
pub struct PresentPods<'a> {
    pub staying: Vec<&'a Pod>,
    pub terminating: Vec<&'a Pod>,
}

/// Checks `pod` against all other pods of the node.
pub fn admit_beside(
    pod: &Pod,
    node_capacity: &NodeCapacity,
    node_support: &NodeSupport,
    present: &PresentPods<'_>,
) -> AdmissionDecision {
    let PresentPods { staying, terminating } = present;
    let all: Vec<&Pod> = staying.iter().chain(terminating).copied().collect();
    let now = check_all(pod, node_capacity, node_support, &all);
    if now == AdmissionDecision::Admitted
        || !node_capacity.waits_for_terminating_pods
        || terminating.is_empty()
    {
        return now;
    }
    match check_all(pod, node_capacity, node_support, staying) {
        AdmissionDecision::Admitted => AdmissionDecision::AdmittedAfterTermination(
            terminating.iter().map(|pod| pod.metadata.uid.to_string()).collect(),
        ),
        _ => now,
    }
}
