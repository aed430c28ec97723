//! Whether a pod may run on this node: resources, labels, taints, ports, operating system.
//!
//! Rules: the checks run in the reference's order and the first that fails gives reason and
//! message, with its texts. A critical pod is not rejected for lack of resources where less
//! important pods can be preempted; but any other failed check rejects it before a pod is
//! preempted. The allocation of CPUs and devices is decided elsewhere.
//!
//! upstream: pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/preemption/preemption.go

use std::collections::BTreeMap;

use pod_model::pod::Pod;
use pod_model::pod::spec::OsName;
use ports::cluster_objects::NodeTaint;

mod affinity;
mod declared_features;
mod host_ports;
mod node_capacity;
mod node_support;
mod own_node;
mod preemption;
mod present_pods;
mod sysctls;
mod taints;
#[cfg(test)]
mod tests;

pub use affinity::matches_node;
pub use declared_features::{DeclaredFeatures, FeatureGates};
pub use node_support::{NodeSupport, check_all};
pub use preemption::{PREEMPTED_DISRUPTION, PREEMPTED_MESSAGE, PREEMPTED_REASON};
pub use present_pods::{PresentPods, admit_beside};
pub use sysctls::{AllowedSysctls, kernel_version};

const OS_LABEL: &str = "kubernetes.io/os";
const THIS_OS: &str = "linux";

/// The node's capacity for pods.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeCapacity {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<NodeTaint>,
    /// The gate `TaintTolerationComparisonOperators`.
    pub compares_tolerations: bool,
    /// `maxPods`.
    pub pods: i64,
    /// By resource name. A plugin's resource that is missing here is not checked; any other missing
    /// resource is zero.
    pub allocatable: pod_model::pod::ResourceList,
    /// Whether a pod waits for terminating pods where only they stand against it.
    pub waits_for_terminating_pods: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionDecision {
    Admitted,
    /// Admitted after preemption of these pods, by UID.
    AdmittedByPreemption(Vec<String>),
    /// As soon as enough of these pods, by UID, have terminated; they are terminating already.
    AdmittedAfterTermination(Vec<String>),
    Rejected {
        reason: String,
        message: String,
    },
}

fn rejected(reason: impl Into<String>, message: impl Into<String>) -> AdmissionDecision {
    AdmissionDecision::Rejected { reason: reason.into(), message: message.into() }
}

/// The first resource that is insufficient for one more pod.
pub fn lacking(pod: &Pod, node_capacity: &NodeCapacity, others: &[&Pod]) -> Option<String> {
    node_capacity::shortages(pod, node_capacity, others)
        .into_iter()
        .next()
        .map(|shortage| shortage.resource)
}

/// Checks `pod`; `others` are those that were admitted and have not terminated.
pub fn admit(pod: &Pod, node_capacity: &NodeCapacity, others: &[&Pod]) -> AdmissionDecision {
    if let Some(rejection) = os_mismatch(pod) {
        return rejection;
    }
    let shortages = node_capacity::shortages(pod, node_capacity, others);
    let failed_predicate = failed_predicate(pod, node_capacity, others);
    if let Some(shortage) = shortages.first().filter(|_| !pod.is_critical()) {
        return rejected(shortage.reason(), shortage.message());
    }
    if let Some((predicate, why)) = failed_predicate {
        return rejected(predicate, format!("Predicate {predicate} failed: {why}"));
    }
    if shortages.is_empty() {
        return AdmissionDecision::Admitted;
    }
    match preemption::victims(pod, others, &shortages) {
        Ok(victims) => AdmissionDecision::AdmittedByPreemption(
            victims.iter().map(|victim| victim.metadata.uid.to_string()).collect(),
        ),
        Err(problem) => rejected(
            "UnexpectedAdmissionError",
            format!(
                "Unexpected error while attempting to recover from admission failure: preemption: \
                 error finding a set of pods to preempt: {problem}"
            ),
        ),
    }
}

fn os_mismatch(pod: &Pod) -> Option<AdmissionDecision> {
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| **os != *THIS_OS) {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(rejected("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if pod.spec.os.as_ref().is_some_and(|os| os.name != OsName::Linux) {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(rejected("PodOSNotSupported", message));
    }
    None
}

/// The failed predicate that preemption cannot resolve: its name and message.
fn failed_predicate(
    pod: &Pod,
    node_capacity: &NodeCapacity,
    others: &[&Pod],
) -> Option<(&'static str, &'static str)> {
    if !matches_node(pod, &node_capacity.labels, &node_capacity.name) {
        return Some(("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    let asked = &*pod.spec.node_name;
    if !asked.is_empty() && asked != node_capacity.name {
        return Some(("NodeName", "node(s) didn't match the requested node name"));
    }
    if host_ports::conflict(pod, others) {
        return Some(("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
    }
    if !taints::tolerates_all(pod, &node_capacity.taints, node_capacity.compares_tolerations) {
        return Some(("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    None
}
