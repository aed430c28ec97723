//! Protection and throttling of memory on cgroup v2 (feature gate `MemoryQoS`).
//!
//! Rule: requests are protected only where the node uses tiered reservation, hard (`memory.min`)
//! for guaranteed pods and soft (`memory.low`) for the others; a container whose limit is above its
//! request is throttled before it reaches the limit.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, pkg/kubelet/cm

use pod_model::pod::resources::{MEMORY, qos_class};
use pod_model::pod::{Container, Pod, QosClass};

use crate::inputs::NodeSetupInputs;
use crate::pod_resources::{amount, requests};

#[cfg(test)]
mod tests;

const MIN: &str = "memory.min";
const LOW: &str = "memory.low";
const HIGH: &str = "memory.high";

type CgroupFiles = Vec<(String, String)>;

fn is_on(node: &NodeSetupInputs) -> bool {
    node.gates.memory_qos && node.machine.cgroup_v2
}

fn file(name: &str, bytes: i64) -> (String, String) {
    (name.to_owned(), bytes.to_string())
}

pub fn of_container(pod: &Pod, container: &Container, node: &NodeSetupInputs) -> CgroupFiles {
    if !is_on(node) {
        return CgroupFiles::new();
    }
    let request = amount(&container.resources.requests, MEMORY).value();
    let limit = amount(&container.resources.limits, MEMORY).value();
    let mut files = if request == 0 || !node.limits.tiered_memory_reservation {
        vec![file(MIN, 0), file(LOW, 0)]
    } else {
        vec![file(protection(pod), request)]
    };
    if request != limit {
        let most = if limit == 0 { amount(&node.allocatable, MEMORY).value() } else { limit };
        let high = throttled(request, most, node);
        if high > request {
            files.push(file(HIGH, high));
        }
    }
    files
}

fn protection(pod: &Pod) -> &'static str {
    if qos_class(pod) == QosClass::Guaranteed { MIN } else { LOW }
}

/// Between request and limit, in whole pages; zero where the page size is not known.
fn throttled(request: i64, most: i64, node: &NodeSetupInputs) -> i64 {
    let page = node.machine.page_bytes;
    let (from, to) = (request as f64, most as f64);
    let pages = (from + (to - from) * node.limits.memory_throttling_factor) / page as f64;
    (pages.floor() as i64).saturating_mul(page)
}

/// For a pod's cgroup.
pub(crate) fn of_pod(pod: &Pod, node: &NodeSetupInputs) -> CgroupFiles {
    let request = amount(&requests(pod, &node.gates), MEMORY).value();
    if !is_on(node) || !node.limits.tiered_memory_reservation || request <= 0 {
        return CgroupFiles::new();
    }
    vec![file(protection(pod), request)]
}

/// For the cgroup of all pods and that of the burstable ones, from the requests of each class.
pub(crate) fn of_classes(
    node: &NodeSetupInputs,
    guaranteed: i64,
    burstable: i64,
) -> (CgroupFiles, CgroupFiles) {
    if !is_on(node) {
        return (CgroupFiles::new(), CgroupFiles::new());
    }
    if !node.limits.tiered_memory_reservation {
        return (vec![file(MIN, 0)], vec![file(LOW, 0)]);
    }
    (vec![file(MIN, guaranteed.saturating_add(burstable))], vec![file(LOW, burstable)])
}

/// For a cgroup of a system reservation.
pub(crate) fn of_reserved(node: &NodeSetupInputs, memory: i64) -> CgroupFiles {
    if node.gates.memory_qos { vec![file(MIN, memory)] } else { CgroupFiles::new() }
}
