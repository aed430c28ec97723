//! Whether a pod may run on this node: room, labels, ports, operating system.
//!
//! Rules: the checks come in the reference's order and the first that fails gives reason and
//! message, in its words. A static pod is always critical: where there is no room for it, others
//! would have to go, and static pods never do; so the reference's word for it is an unexpected
//! admission error. What belongs to whom (CPUs, devices) is decided elsewhere.
//!
//! upstream: pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/preemption/preemption.go

use std::collections::BTreeMap;

use pod_model::pod::Pod;
use pod_model::pod::resources::{CPU, effective_requests};
use pod_model::pod::spec::OsName;

mod abilities;
mod affinity;
mod host_ports;
mod sysctls;
#[cfg(test)]
mod tests;

pub use abilities::{NodeAbilities, judge_all};
pub use affinity::matches_node;
pub use sysctls::AllowedSysctls;

const PODS: &str = "pods";
const OS_LABEL: &str = "kubernetes.io/os";
const THIS_OS: &str = "linux";

/// What the node has for pods.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeRoom {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// `maxPods`.
    pub pods: i64,
    /// By resource name; a resource that is not here is not counted.
    pub allocatable: pod_model::pod::ResourceList,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Admitted,
    Rejected { reason: String, message: String },
}

fn rejected(reason: impl Into<String>, message: impl Into<String>) -> Verdict {
    Verdict::Rejected { reason: reason.into(), message: message.into() }
}

/// Judges `pod`; `others` are those that were admitted and have not ended.
pub fn judge(pod: &Pod, room: &NodeRoom, others: &[&Pod]) -> Verdict {
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| **os != *THIS_OS) {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return rejected("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if pod.spec.os.as_ref().is_some_and(|os| os.name != OsName::Linux) {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return rejected("PodOSNotSupported", message);
    }
    let missing = missing(pod, room, others);
    if !missing.is_empty() {
        let amounts: Vec<String> =
            missing.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect();
        let message = format!(
            "Unexpected error while attempting to recover from admission failure: preemption: \
             error finding a set of pods to preempt: no set of running pods found to reclaim \
             resources: [{}]",
            amounts.concat()
        );
        return rejected("UnexpectedAdmissionError", message);
    }
    if !matches_node(pod, &room.labels, &room.name) {
        let message =
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return rejected("NodeAffinity", message);
    }
    if host_ports::conflict(pod, others) {
        let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return rejected("NodePorts", message);
    }
    Verdict::Admitted
}

/// What the node lacks for the pod, by resource.
fn missing(pod: &Pod, room: &NodeRoom, others: &[&Pod]) -> Vec<(String, i64)> {
    let mut missing = Vec::new();
    let used = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if used.saturating_add(1) > room.pods {
        missing.push((PODS.to_owned(), used.saturating_add(1).saturating_sub(room.pods)));
    }
    let asked = effective_requests(&pod.spec);
    let amount = |name: &str, quantity: &pod_model::Quantity| match name {
        CPU => quantity.milli_value(),
        _ => quantity.value(),
    };
    for (name, capacity) in room.allocatable.iter() {
        let Some(wanted) = asked.get(name).map(|quantity| amount(name, quantity)) else { continue };
        if wanted <= 0 {
            continue;
        }
        let used = others.iter().fold(0_i64, |sum, other| {
            let requests = effective_requests(&other.spec);
            sum.saturating_add(requests.get(name).map_or(0, |quantity| amount(name, quantity)))
        });
        let over = wanted.saturating_add(used).saturating_sub(amount(name, capacity));
        if over > 0 {
            missing.push((name.to_owned(), over));
        }
    }
    missing
}
