//! `oom_score_adj`: which container the kernel kills first when the machine runs out of memory.
//!
//! Rule: critical and guaranteed pods last, those without requests first, the others by their share
//! of the machine's memory. A sidecar is never more at risk than the containers it serves.
//!
//! upstream: pkg/kubelet/qos/policy.go

use pod_model::pod::resources::{MEMORY, ResourceSide, containers_total, qos_class};
use pod_model::pod::{Container, Pod, QosClass};

use crate::inputs::{NodeSetupInputs, SetupGates};
use crate::pod_resources::{amount, has_pod_level_requests};

#[cfg(test)]
mod tests;

const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;
const LOWEST_BURSTABLE: i64 = 1000 + GUARANTEED;
const NODE_CRITICAL_CLASS: &str = "system-node-critical";

pub fn of_container(pod: &Pod, container: &Container, node: &NodeSetupInputs) -> i64 {
    if pod.is_critical() && &*pod.spec.priority_class_name == NODE_CRITICAL_CLASS {
        return GUARANTEED;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return GUARANTEED,
        QosClass::BestEffort => return BEST_EFFORT,
        QosClass::Burstable | QosClass::Other(_) => {}
    }
    let share = unshared_request(pod, &node.gates);
    let score = |request: i64| {
        let request = request.saturating_add(share);
        1000 - request.saturating_mul(1000).checked_div(node.machine.memory_bytes).unwrap_or(0)
    };
    let mut adjust = score(memory_request(container));
    if is_sidecar(pod, container) {
        let requests = pod.spec.containers.iter().map(memory_request);
        adjust = adjust.min(score(requests.min().unwrap_or(0)));
    }
    match adjust {
        ..LOWEST_BURSTABLE => LOWEST_BURSTABLE,
        BEST_EFFORT => BEST_EFFORT - 1,
        between => between,
    }
}

fn memory_request(container: &Container) -> i64 {
    amount(&container.resources.requests, MEMORY).value()
}

/// Each container's share of the pod-level request beyond its containers' requests.
fn unshared_request(pod: &Pod, gates: &SetupGates) -> i64 {
    let pod_level_resources =
        pod.spec.resources.as_deref().filter(|_| has_pod_level_requests(pod, gates));
    let whole = pod_level_resources
        .map_or(0, |pod_level_resources| amount(&pod_level_resources.requests, MEMORY).value());
    if whole == 0 {
        return 0;
    }
    let asked = amount(&containers_total(&pod.spec, ResourceSide::Requests), MEMORY).value();
    let count = pod.spec.containers.len() + pod.spec.init_containers.len();
    (whole - asked).checked_div(i64::try_from(count).unwrap_or(i64::MAX)).unwrap_or(0)
}

fn is_sidecar(pod: &Pod, container: &Container) -> bool {
    container.is_restarted_always()
        && pod.spec.init_containers.iter().any(|init| init.name == container.name)
}
